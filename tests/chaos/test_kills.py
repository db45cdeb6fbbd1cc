"""Row 1: kill -9 of the whole job at random moments, also during saves."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.chaos.jobs import (
    SAVE_EVERY,
    SECONDS,
    SETTINGS,
    kill_all,
    last_step,
    newest_step,
    wait_until,
)
from tests.chaos.results import Row, row
from tests.launch.forking import train_forked
from tests.launch.launching import assert_same_run, build_demo_corpus, launch, start

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 160
OPERATIONS = 60  # of the first three saves after a start
MOMENTS = ("start", "training", "saving", "saving", "saving")
# Training continues while a checkpoint is written, up to the next one.
MAX_LOST = 2 * SAVE_EVERY
TITLE = "kill -9 of the whole job, including during saves"


def test_kills_short(tmp_path: Path) -> None:
    with row(1, TITLE, seed=7) as results:
        corpus = build_demo_corpus(tmp_path)
        _chain(results, corpus, tmp_path, random.Random(7), ranks=2, kills=2)


@pytest.mark.chaos
@pytest.mark.timeout(2400)
def test_fifty_kills(tmp_path: Path) -> None:
    with row(1, TITLE, seed=1) as results:
        corpus, rng = build_demo_corpus(tmp_path), random.Random(1)
        for ranks, kills in ((1, 9), (2, 9), (4, 5), (1, 9), (2, 9), (2, 9)):
            directory = tmp_path / f"chain-{results.tried}"
            _chain(results, corpus, directory, rng, ranks, kills)
        assert results.tried == 50


def _chain(
    results: Row, corpus: Path, directory: Path, rng: random.Random, ranks: int, kills: int
) -> None:
    """Kill a run repeatedly; its result must equal that of a run that was not killed."""
    settings = (*SETTINGS, f"train.max_steps={STEPS}")
    unbroken, broken = directory / "unbroken" / "run", directory / "broken" / "run"
    train_forked(corpus, unbroken, *settings, ranks=ranks)
    library = faults.build(directory)
    tried = results.tried
    lost = [0]
    while results.tried < tried + kills:
        moment = rng.choice(MOMENTS)
        at, delay = rng.randint(1, OPERATIONS), rng.random()
        with results.case(f"{ranks} ranks, {moment}, {at} / {delay:.3f}"):
            extra = None
            if moment == "saving":
                extra = faults.environment(library, broken / "checkpoints", at, "group")
            process = start(corpus, broken, *settings, ranks=ranks, extra=extra)
            before = last_step(broken)
            if moment == "start":
                time.sleep(8 * delay)
            elif moment == "training":
                wait_until(lambda b=broken, s=before: last_step(b) > s, process)
                time.sleep(delay)
            else:
                process.wait(timeout=SECONDS)
            kill_all(process)
            lost.append(last_step(broken) - newest_step(broken))
            assert lost[-1] <= MAX_LOST, f"{lost[-1]} steps were lost"
        if last_step(broken) >= STEPS:  # it has finished: start another one
            if newest_step(broken) < STEPS:  # killed during its last save
                launch(corpus, broken, *settings, ranks=ranks)
            assert_same_run(unbroken, broken, STEPS)
            broken = directory / f"broken-{results.tried}" / "run"
    with results.case(f"{ranks} ranks, the end of the chain"):
        launch(corpus, broken, *settings, ranks=ranks)
        assert_same_run(unbroken, broken, STEPS)
    results.tried -= 1  # the end of a chain does not count as a kill
    worst = max(*lost, int(results.worst.split()[0]) if results.worst else 0)
    results.worst = (
        f"{worst} steps lost (saved every {SAVE_EVERY}); losses and weights bit-identical"
    )
