"""Row 1: kill -9 of the whole job at seeded moments, in the middle of saves too."""

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
from tests.chaos.table import Row, row
from tests.launch.launching import assert_same_run, build_demo_corpus, launch, start

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 160
OPERATIONS = 60  # of the first three saves after a start
TITLE = "kill -9 of the whole job, mid-save included"


def test_some_kills(tmp_path: Path) -> None:
    with row(1, TITLE, seed=7) as trying:
        corpus = build_demo_corpus(tmp_path)
        _chain(trying, corpus, tmp_path, random.Random(7), ranks=2, kills=2)


@pytest.mark.chaos
@pytest.mark.timeout(2400)
def test_fifty_kills(tmp_path: Path) -> None:
    with row(1, TITLE, seed=1) as trying:
        corpus, rng = build_demo_corpus(tmp_path), random.Random(1)
        for ranks, kills in ((1, 9), (2, 9), (4, 5), (1, 9), (2, 9), (2, 9)):
            place = tmp_path / f"chain-{trying.tried}"
            _chain(trying, corpus, place, rng, ranks, kills)
        assert trying.tried == 50


def _chain(
    trying: Row, corpus: Path, place: Path, rng: random.Random, ranks: int, kills: int
) -> None:
    """One run that is killed again and again, and must end as one that never was."""
    settings = (*SETTINGS, f"train.max_steps={STEPS}")
    whole, broken = place / "whole" / "run", place / "broken" / "run"
    launch(corpus, whole, *settings, ranks=ranks)
    library = faults.build(place)
    tried = trying.tried
    lost = [0]
    while trying.tried < tried + kills:
        moment = rng.choice(("start", "training", "saving", "saving"))
        at, delay = rng.randint(1, OPERATIONS), rng.random()
        with trying.case(f"{ranks} ranks, {moment}, {at} / {delay:.3f}"):
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
            assert lost[-1] <= SAVE_EVERY, f"{lost[-1]} steps are lost"
        if last_step(broken) >= STEPS:  # it came to its end: break the next one
            if newest_step(broken) < STEPS:  # killed in its last save
                launch(corpus, broken, *settings, ranks=ranks)
            assert_same_run(whole, broken, STEPS)
            broken = place / f"broken-{trying.tried}" / "run"
    with trying.case(f"{ranks} ranks, the end of the chain"):
        launch(corpus, broken, *settings, ranks=ranks)
        assert_same_run(whole, broken, STEPS)
    trying.tried -= 1  # the end of a chain is no kill of its own
    worst = max(*lost, int(trying.worst.split()[0]) if trying.worst else 0)
    trying.worst = f"{worst} steps lost (saved every {SAVE_EVERY}); losses and weights bit-equal"
