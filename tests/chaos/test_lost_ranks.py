"""Row 2: one rank is killed or stopped; the job names it and all processes exit."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.jobs import SETTINGS, kill_all, still_running
from tests.chaos.results import row
from tests.launch.launching import build_demo_corpus, ranks_of, start, tree_of, wait_for_step

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
TIMEOUT = 10
CASES = [
    (number, ranks, victim)
    for number in (signal.SIGKILL, signal.SIGSTOP)
    for ranks, victim in ((2, 0), (2, 1), (4, 0), (4, 2))
]


@pytest.mark.timeout(1200)
def test_lost_ranks(tmp_path: Path) -> None:
    with row(2, "kill -9 or SIGSTOP of one rank") as results:
        corpus = build_demo_corpus(tmp_path)
        slowest = 0.0
        for number, ranks, victim in CASES:
            output = tmp_path / f"{number.name}-{ranks}-{victim}" / "run"
            with results.case(f"{number.name} to rank {victim} of {ranks}"):
                settings = (*SETTINGS, "train.max_steps=100000")
                process = start(
                    corpus, output, *settings, f"train.timeout_seconds={TIMEOUT}", ranks=ranks
                )
                try:
                    wait_for_step(output, 5)
                    tree = tree_of(process)
                    begun = time.monotonic()
                    ranks_of(tree)[victim].send_signal(number)
                    code = process.wait(timeout=TIMEOUT + 60)
                    seconds = time.monotonic() - begun
                    running = still_running(tree)
                finally:
                    kill_all(process)
                slowest = max(slowest, seconds)
                assert seconds <= TIMEOUT + 10, f"the exit took {seconds:.1f} s"
                assert code != 0
                assert not running, f"{running} are still running"
                log = output.with_suffix(".log").read_text(encoding="utf-8")
                assert re.search(rf"error: rank {victim} \(process .*, in step \d+\.", log), log
        results.worst = (
            f"{slowest:.1f} s until exit with a timeout of {TIMEOUT} s; no process remained"
        )
