"""Row 3: SIGTERM to any process at any moment saves within a step, with a documented exit code."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.jobs import is_saving, kill_all, last_step, newest_step, still_running, wait_until
from tests.chaos.results import row
from tests.launch.launching import build_demo_corpus, launch, ranks_of, start, tree_of

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
TARGETS = ("outer", "launcher", "rank", "all")
MOMENTS = ("start-up", "warm-up", "training", "evaluation", "saving", "twice", "late start-up")
MORE = [("training", "rank"), ("saving", "all")]
# 75 is from a rank; 1 and -15 (143) are from DeepSpeed's processes if they get the signal.
CODES = {75, 1, -signal.SIGTERM, 128 + signal.SIGTERM}
# Steps of about 0.1 s, evaluations as long as several steps, and many saves.
SETTINGS = (
    "deepspeed.train_batch_size=64",
    "data.unroll_steps=40",
    "train.max_steps=100000",
    "train.checkpoints.every_steps=3",
    "train.evaluation.every_steps=5",
    "train.evaluation.rows=2",
    "train.log.histograms_every_steps=null",
)


@pytest.mark.timeout(2400)
def test_thirty_sigterms(tmp_path: Path) -> None:
    with row(3, "SIGTERM at 30 moments, to four targets", seed=3) as results:
        corpus, rng = build_demo_corpus(tmp_path), random.Random(3)
        slowest, latest = 0.0, 0
        for moment, target in [*itertools.product(MOMENTS, TARGETS), *MORE]:
            output = tmp_path / f"{results.tried}" / "run"
            with results.case(f"{moment}, {target}"):
                process = start(corpus, output, *SETTINGS, ranks=2)
                try:
                    _wait_for(moment, output, process, rng)
                    tree = tree_of(process)
                    begun = time.monotonic()
                    _send(tree, target)
                    step = last_step(output)
                    if moment == "twice":
                        time.sleep(0.1)
                        _send(tree, target)
                    code = process.wait(timeout=60)
                    psutil.wait_procs(tree, timeout=30)
                    seconds = time.monotonic() - begun
                    running = still_running(tree)
                finally:
                    kill_all(process)
                slowest = max(slowest, seconds)
                assert seconds < 30, f"the exit took {seconds:.1f} s"
                assert not running, f"{running} are still running"
                # DeepSpeed's outer process returns 0 if its launcher exits very early
                has_begun = output.exists()
                assert code in CODES or (code == 0 and not has_begun), f"exit code {code}"
                if step or moment in ("warm-up", "training"):
                    # step + 1 was running; the next one may have started before all ranks agreed
                    latest = max(latest, newest_step(output) - step - 1)
                    assert newest_step(output) == last_step(output), "the last step was not saved"
                    assert latest <= 1, f"saved {latest} steps too late"
                launch(
                    corpus,
                    output,
                    *SETTINGS,
                    f"train.max_steps={last_step(output) + 1}",
                    ranks=None,
                )
        results.worst = (
            f"{slowest:.1f} s until exit; saved {max(0, latest)} steps after the current one"
        )


def _wait_for(
    moment: str, output: Path, process: subprocess.Popen[bytes], rng: random.Random
) -> None:
    config = output / "config.json"  # written just before the first step
    if moment == "start-up":
        time.sleep(1 + 4 * rng.random())
    elif moment == "late start-up":
        wait_until(lambda: (output / "lock").exists(), process, pause=0.002)
    elif moment == "warm-up":
        wait_until(config.exists, process, pause=0.002)
    elif moment == "evaluation":
        wait_until(lambda: last_step(output) >= 5, process, pause=0.002)
    elif moment == "saving":
        wait_until(lambda: is_saving(output), process, pause=0.001)
    else:
        wait_until(lambda: last_step(output) >= 2, process)
        time.sleep(0.3 * rng.random())


def _send(tree: list[psutil.Process], target: str) -> None:
    alive = set(still_running(tree))
    ranks = ranks_of([process for process in tree if process.pid in alive])
    targets = {"outer": tree[:1], "launcher": tree[1:2], "rank": ranks[1:2], "all": tree}[target]
    for process in targets or tree[:1]:  # in the first second there are no ranks yet
        if process.pid in alive:
            process.send_signal(signal.SIGTERM)
