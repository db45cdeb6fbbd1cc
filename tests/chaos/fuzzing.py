"""Fuzz a reader: `python -m tests.chaos.fuzzing TARGET COUNT SEED ARTIFACTS WORK`.

Readers that run the C code of a library (HDF5, sentencepiece) are fuzzed in a separate process,
so that a crash of the interpreter is counted as a failure. Hypothesis draws the mutations from the
seed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.chaos.fuzz_targets import TARGETS, Attempt, Target

BATCH_EXAMPLES = 500  # per run of hypothesis, which keeps them all in memory
MAX_ADDRESS_SPACE = 16 << 30
VARIANTS = 8


def fuzz(
    target: Target, attempt: Attempt, count: int, first_seed: int
) -> Iterator[Exception | None]:
    """Make at least `count` attempts; yield the exception of each one, or None."""
    batch = 0
    while count > 0:
        examples = min(BATCH_EXAMPLES, -(-count // VARIANTS))
        outcomes = _run(target, attempt, examples, first_seed * 1000 + batch)
        yield from outcomes
        count -= len(outcomes)
        batch += 1


def _run(target: Target, attempt: Attempt, count: int, number: int) -> list[Exception | None]:
    outcomes: list[Exception | None] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.strategy)
    def run(drawn: Any) -> None:
        for variant in range(VARIANTS):
            try:
                attempt(drawn, variant)
                outcomes.append(None)
            except Exception as error:
                error.add_note(f"variant {variant} of {drawn!r:.500}")
                outcomes.append(error)

    run()
    return outcomes


def main() -> None:
    """Print one JSON line per failed attempt, then the number of attempts.

    WORK/tried always contains the number of attempts so far, in case this process crashes.
    """
    name, count, first_seed, artifacts, work = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    target = TARGETS[name]
    attempt = target.make(Path(artifacts), Path(work))
    tried = os.open(Path(work) / "tried", os.O_RDWR | os.O_CREAT)
    number = 0

    def counted(drawn: Any, variant: int) -> None:
        nonlocal number
        number += 1
        os.pwrite(tried, f"{number:10d}".encode(), 0)
        attempt(drawn, variant)

    for error in fuzz(target, counted, int(count), int(first_seed)):
        if error is not None:
            notes = " ".join(getattr(error, "__notes__", []))
            print(json.dumps(f"{type(error).__name__}: {error} {notes}"))
    print(number, flush=True)


if __name__ == "__main__":
    main()
