"""When to stop: signals, and the death of the processes that started us.

A handler only raises a flag; the ranks agree on it at the next step border, save, and leave. The
outer `deepspeed` process passes no signal on when it is ended, so each rank also watches the chain
of processes above it.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from types import FrameType

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

PAIR_SECONDS = 1.0  # signals come in pairs: so far apart at most

_ENDED = "the process that started this rank has ended"


class StopRequest:
    """Whether this process has been asked to stop."""

    def __init__(self) -> None:
        self._chain = _launcher_chain()
        self._reason = _ENDED if _is_orphaned(self._chain) else None
        self._signalled: float | None = None

    def listen(self) -> None:
        """Turn stop signals into requests; one that is being ignored (nohup) stays ignored."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    @property
    def reason(self) -> str | None:
        """Why to stop, or None."""
        if self._reason is None and _launcher_chain() != self._chain:
            self._reason = _ENDED
        return self._reason

    def outlast_pair(self) -> None:
        """Where a signal came, do not leave before a second one can have come.

        DeepSpeed's launcher waits for its ranks, then ends with 1; but a signal that meets it in
        that end makes `deepspeed` return 0, as if the training were done.
        """
        if self._signalled is not None:
            time.sleep(max(0.0, self._signalled + PAIR_SECONDS - time.monotonic()))

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signalled is None:
            self._signalled = time.monotonic()
        self._reason = signal.Signals(number).name


def _launcher_chain() -> tuple[int, ...]:
    """DeepSpeed's own processes above us, nearest first.

    The shell above them may end (a log-out after nohup); a rank without a launcher has none.
    """
    chain: list[int] = []
    process: int | None = os.getppid()
    while process is not None and len(chain) < 4 and _is_deepspeed(process):
        chain.append(process)
        process = _parent_of(process)
    return tuple(chain)


def _is_orphaned(chain: tuple[int, ...]) -> bool:
    """Whether the outer `deepspeed` ended while we were starting.

    Then DeepSpeed's launcher stands alone, in a process group whose first process is gone, below
    a process of another session that has taken it over.
    """
    if len(chain) != 1 or not _is_deepspeed(chain[0]):
        return False
    try:
        group, session = os.getpgid(chain[0]), os.getsid(chain[0])
        parent = _parent_of(chain[0])
        is_taken_over = parent is not None and os.getsid(parent) != session
    except OSError:
        return False
    return is_taken_over and not Path(f"/proc/{group}").exists()


def _is_deepspeed(process: int) -> bool:
    try:
        parts = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        # the command `deepspeed` itself, or `python -m deepspeed.launcher.launch`
        return any(
            part.rsplit(b"/", 1)[-1] == b"deepspeed" or part.startswith(b"deepspeed.launcher.")
            for part in parts
        )
    except OSError:  # gone, or not Linux: then only signals count
        return False


def _parent_of(process: int) -> int | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
