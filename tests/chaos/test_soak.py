"""Row 13: twenty thousand steps, with checkpoints, evaluations and prefetching.

A machine's own speed changes within these minutes (clock, neighbours on its host). A yardstick, a
fixed piece of work whose seconds of a core are measured all along, tells it: where the machine has
become faster, words a second must have too; where it has become slower, it is only told.
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
from tests.chaos.table import row
from tests.launch.launching import build_demo_corpus, events, ranks_of, start, tree_of

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
STEPS = 20_000
SECONDS = 1500
SETTINGS = (
    *(f"train.max_steps={STEPS}", "train.num_epochs=100000", "data.num_workers=2"),
    *("train.checkpoints.every_steps=500", "train.evaluation.every_steps=1000"),
    *("train.log.every_steps=100", "train.log.histograms_every_steps=1000"),
)


@dataclass
class Series:
    """A quantity, by step."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Keep what was seen at a step."""
        self.steps.append(step)
        self.values.append(value)

    def tenth(self, number: int) -> list[float]:
        """The values of one tenth of the run, the first of which is tenth 1."""
        low, high = STEPS * (number - 1) // 10, STEPS * number // 10
        return [v for s, v in zip(self.steps, self.values, strict=True) if low < s <= high]

    def peaks(self) -> tuple[float, float]:
        """The highest values of the second tenth and of the last."""
        return max(self.tenth(2)), max(self.tenth(10))

    def change(self) -> float:
        """The mean of the last tenth as a ratio to that of the second."""
        return fmean(self.tenth(10)) / fmean(self.tenth(2))


@dataclass
class Rank:
    """What one rank has used."""

    memory: Series = field(default_factory=Series)
    handles: Series = field(default_factory=Series)


@pytest.mark.timeout(SECONDS + 100)
def test_twenty_thousand_steps(tmp_path: Path) -> None:
    with row(13, f"a soak of {STEPS:,} steps on 2 ranks") as trying:
        corpus, output = build_demo_corpus(tmp_path, sentences=6000), tmp_path / "x" / "run"
        process = start(corpus, output, *SETTINGS, ranks=2)
        ranks: dict[int, Rank] = {}
        machine = Series()
        try:
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(1)
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                    step = last_step(output)
                    machine.add(step, 1 / _yardstick())
                    _look(ranks, ranks_of(tree_of(process)), step)
            code = process.poll()
        finally:
            kill_all(process)
        assert code == 0, f"exit code {code} at step {last_step(output)}"
        growth = more = 0.0
        for number, rank in enumerate(ranks.values()):
            with trying.case(f"memory of rank {number}"):
                early, late = rank.memory.peaks()
                growth = max(growth, late / early - 1)
                assert late <= 1.02 * early, f"{early:,} bytes, then {late:,}"
            with trying.case(f"open files of rank {number}"):
                early, late = rank.handles.peaks()
                more = max(more, late - early)
                assert late <= early, f"{early}, then {late}"
        speed = Series()
        for line in events(output, "train"):
            speed.add(line["step"], line["words_per_second"])
        told = f"{speed.change() - 1:+.1%}, of the machine {machine.change() - 1:+.1%}"
        with trying.case("words a second"):
            assert speed.change() >= 0.9 * max(1.0, machine.change()), told
        trying.worst = (
            f"memory {growth:+.2%}, handles {more:+.0f} from the second tenth to the last; "
            f"words/s {told}"
        )


def _yardstick() -> float:
    """The seconds of a core that a fixed piece of work takes now, however often it is put aside."""
    start, total = time.thread_time(), 0
    for number in range(120_000):
        total += number * number % 7
    return time.thread_time() - start


def _look(ranks: dict[int, Rank], processes: list[psutil.Process], step: int) -> None:
    for process in processes:
        try:
            memory, handles = process.memory_info().rss, process.num_fds()
        except psutil.Error:
            continue  # it has just ended
        rank = ranks.setdefault(process.pid, Rank())
        rank.memory.add(step, memory)
        rank.handles.add(step, handles)
