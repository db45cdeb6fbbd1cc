"""Row 13: twenty thousand steps, with checkpoints, evaluations and prefetching.

The speed of a machine changes during these minutes (clock rate, other guests on its host). A fixed
workload is timed throughout the run to measure it: if the machine has become faster, the throughput
must have increased too; if it has become slower, this is only reported.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import psutil
import pytest

from tests.chaos.jobs import kill_all, last_step
from tests.chaos.results import row
from tests.launch.launching import build_demo_corpus, events, ranks_of, start, tree_of

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
STEPS = 20_000
SECONDS = 1500
SETTINGS = (
    f"train.max_steps={STEPS}",
    "train.num_epochs=100000",
    "data.num_workers=2",
    "train.checkpoints.every_steps=500",
    "train.evaluation.every_steps=1000",
    "train.log.every_steps=100",
    "train.log.histograms_every_steps=1000",
)


@dataclass
class Series:
    """A measured quantity by step."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Add the value at a step."""
        self.steps.append(step)
        self.values.append(value)

    def tenth(self, number: int) -> list[float]:
        """Return the values of one tenth of the run, counted from 1."""
        low, high = STEPS * (number - 1) // 10, STEPS * number // 10
        return [v for s, v in zip(self.steps, self.values, strict=True) if low < s <= high]

    def peaks(self) -> tuple[float, float]:
        """Return the maxima of the second and of the last tenth."""
        return max(self.tenth(2)), max(self.tenth(10))

    def change(self) -> float:
        """Return the mean of the last tenth divided by that of the second."""
        return fmean(self.tenth(10)) / fmean(self.tenth(2))


@dataclass
class Rank:
    """The resources that one rank has used."""

    memory: Series = field(default_factory=Series)
    handles: Series = field(default_factory=Series)


@pytest.mark.timeout(SECONDS + 100)
def test_twenty_thousand_steps(tmp_path: Path) -> None:
    with row(13, f"a soak test of {STEPS:,} steps on 2 ranks") as results:
        corpus, output = build_demo_corpus(tmp_path, sentences=6000), tmp_path / "x" / "run"
        process = start(corpus, output, *SETTINGS, ranks=2)
        ranks: dict[int, Rank] = {}
        machine = Series()
        try:
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(1)
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just exited
                    step = last_step(output)
                    machine.add(step, 1 / _time_workload())
                    _measure(ranks, ranks_of(tree_of(process)), step)
            code = process.poll()
        finally:
            kill_all(process)
        assert code == 0, f"exit code {code} at step {last_step(output)}"
        growth = more = 0.0
        for number, rank in enumerate(ranks.values()):
            with results.case(f"memory of rank {number}"):
                early, late = rank.memory.peaks()
                growth = max(growth, late / early - 1)
                assert late <= 1.02 * early, f"{early:,} bytes, then {late:,}"
            with results.case(f"open files of rank {number}"):
                early, late = rank.handles.peaks()
                more = max(more, late - early)
                assert late <= early, f"{early}, then {late}"
        speed = Series()
        for line in events(output, "train"):
            speed.add(line["step"], line["words_per_second"])
        change = f"{speed.change() - 1:+.1%}, machine {machine.change() - 1:+.1%}"
        with results.case("throughput"):
            assert speed.change() >= 0.9 * max(1.0, machine.change()), change
        results.worst = (
            f"memory {growth:+.2%}, open files {more:+.0f} from the second to the last tenth; "
            f"words/s {change}"
        )


def _time_workload() -> float:
    """Return the CPU seconds of a fixed workload, not counting time spent waiting for the CPU."""
    start, total = time.thread_time(), 0
    for number in range(120_000):
        total += number * number % 7
    return time.thread_time() - start


def _measure(ranks: dict[int, Rank], processes: list[psutil.Process], step: int) -> None:
    for process in processes:
        try:
            memory, handles = process.memory_info().rss, process.num_fds()
        except psutil.Error:
            continue  # it has just exited
        rank = ranks.setdefault(process.pid, Rank())
        rank.memory.add(step, memory)
        rank.handles.add(step, handles)
