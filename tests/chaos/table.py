"""What each row of docs/reliability.md has tried, and what came of it.

A row's cases are counted as they are tried; one that does not hold is noted, and the row goes on,
so that the table says how many of how many. At its end the row fails if any case fell short.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIGURES_VARIABLE = "BILM_CHAOS_FIGURES"  # a file to which every row adds a line


@dataclass
class Row:
    """One row of the table, while it is being tried."""

    number: int
    title: str
    seed: int | None = None
    tried: int = 0
    fallen: list[str] = field(default_factory=list)
    worst: str = ""

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """One thing that is tried: it holds unless an assertion or another error leaves it."""
        self.tried += 1
        try:
            yield
        except Exception as error:
            self.fallen.append(f"{name}: {type(error).__name__}: {error}")

    @property
    def held(self) -> int:
        """Cases that held."""
        return self.tried - len(self.fallen)

    def as_json(self, seconds: float) -> dict[str, Any]:
        """The row for the file of figures."""
        return {
            "row": self.number,
            "title": self.title,
            "seed": self.seed,
            "tried": self.tried,
            "held": self.held,
            "worst": self.worst,
            "fallen": self.fallen,
            "seconds": round(seconds, 1),
        }


@contextmanager
def row(number: int, title: str, seed: int | None = None) -> Iterator[Row]:
    """Try a row of the table; at the end it is written down, and fails if a case fell short."""
    if seed is not None:
        print(f"row {number}: seed {seed}")
    trying = Row(number, title, seed)
    start = time.monotonic()
    try:
        yield trying
    finally:
        file = os.environ.get(FIGURES_VARIABLE)
        if file is not None:
            with Path(file).open("a", encoding="utf-8") as figures:
                figures.write(json.dumps(trying.as_json(time.monotonic() - start)) + "\n")
    assert trying.tried > 0, "nothing was tried"
    assert not trying.fallen, f"{len(trying.fallen)} of {trying.tried} fell short:\n" + "\n".join(
        trying.fallen[:20]
    )
