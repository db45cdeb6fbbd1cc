"""Report the progress of a long pass: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

LINE_SECONDS = 10.0


class Progress:
    """Reports progress towards `total` (of any unit), and words per second."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(total, 1)
        self._done = 0
        self._start = self._last_line = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            layout = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}"
            self._bar = tqdm(total=self._total, desc=what, bar_format=layout, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, words: int) -> None:
        """Report `done` of the total, and `words`, both since the start."""
        now = time.monotonic()
        rate = words / max(now - self._start, 1e-9)
        speed = f"{words:,} words, {rate:,.0f} words/s" if words else ""
        if self._bar is not None:
            self._bar.set_postfix_str(speed, refresh=False)
            self._bar.update(done - self._done)
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            share = done / self._total
            left = (now - self._start) * (1 - share) / share if share else 0.0
            parts = [f"{share:.0%}", speed, f"{left:,.0f} s left"]
            line = ", ".join(part for part in parts if part)
            print(f"{self._what}: {line}", file=sys.stderr, flush=True)
        self._done = done
