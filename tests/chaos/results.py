"""The results of a row of docs/reliability.md: the number of cases, and the failures.

A failing case is recorded and the row continues, so that the table shows how many of the cases
passed. At the end the row fails if any case has failed.
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

FIGURES_VARIABLE = "BILM_CHAOS_FIGURES"  # names a file to which every row appends a line


@dataclass
class Row:
    """The results of one row of the table so far."""

    number: int
    title: str
    seed: int | None = None
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    worst: str = ""

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Count a case, which passes unless its block raises an exception."""
        self.tried += 1
        try:
            yield
        except Exception as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")

    @property
    def passed(self) -> int:
        """The number of cases that passed."""
        return self.tried - len(self.failures)

    def as_json(self, seconds: float) -> dict[str, Any]:
        """Return the results as a line of the file of figures."""
        return {
            "row": self.number,
            "title": self.title,
            "seed": self.seed,
            "tried": self.tried,
            "passed": self.passed,
            "worst": self.worst,
            "failures": self.failures,
            "seconds": round(seconds, 1),
        }


@contextmanager
def row(number: int, title: str, seed: int | None = None) -> Iterator[Row]:
    """Collect the results of a row; at the end write them, and fail if a case has failed."""
    if seed is not None:
        print(f"row {number}: seed {seed}")
    results = Row(number, title, seed)
    start = time.monotonic()
    try:
        yield results
    finally:
        file = os.environ.get(FIGURES_VARIABLE)
        if file is not None:
            with Path(file).open("a", encoding="utf-8") as figures:
                figures.write(json.dumps(results.as_json(time.monotonic() - start)) + "\n")
    assert results.tried > 0, "there were no cases"
    assert not results.failures, (
        f"{len(results.failures)} of {results.tried} failed:\n" + "\n".join(results.failures[:20])
    )
