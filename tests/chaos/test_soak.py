"""Row 13: twenty thousand steps, with checkpoints, evaluations and prefetching."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

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
class Watched:
    """What one rank has used, by step."""

    steps: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    handles: list[int] = field(default_factory=list)

    def part(self, values: list[int], tenths: tuple[int, int]) -> list[int]:
        """The values of some tenths of the run."""
        low, high = (STEPS * tenth // 10 for tenth in tenths)
        return [v for s, v in zip(self.steps, values, strict=True) if low <= s < high]


@pytest.mark.timeout(SECONDS + 100)
def test_twenty_thousand_steps(tmp_path: Path) -> None:
    with row(13, f"a soak of {STEPS:,} steps on 2 ranks") as trying:
        corpus, output = build_demo_corpus(tmp_path, sentences=6000), tmp_path / "x" / "run"
        process = start(corpus, output, *SETTINGS, ranks=2)
        watched: dict[int, Watched] = {}
        try:
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(1)
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                    _look(watched, ranks_of(tree_of(process)), last_step(output))
            code = process.poll()
        finally:
            kill_all(process)
        assert code == 0, f"exit code {code} at step {last_step(output)}"
        growth = handles = 0.0
        for rank, seen in enumerate(watched.values()):
            with trying.case(f"memory of rank {rank}"):
                early = max(seen.part(seen.memory, (1, 2)))
                late = max(seen.part(seen.memory, (9, 10)))
                growth = max(growth, late / early - 1)
                assert late <= 1.02 * early, f"{early:,} bytes, then {late:,}"
            with trying.case(f"open files of rank {rank}"):
                before = max(seen.part(seen.handles, (1, 2)))
                after = max(seen.part(seen.handles, (9, 10)))
                handles = max(handles, after - before)
                assert after <= before, f"{before}, then {after}"
        speeds = [line["words_per_second"] for line in events(output, "train")]
        tenth = len(speeds) // 10
        second, last = (sum(part) / tenth for part in (speeds[tenth : 2 * tenth], speeds[-tenth:]))
        with trying.case("words a second"):
            assert last >= 0.9 * second, f"{second:,.0f}, then {last:,.0f}"
        trying.worst = (
            f"memory {growth:+.2%}, handles {handles:+.0f} from the second tenth to the last; "
            f"speed {last / second - 1:+.1%}"
        )


def _look(watched: dict[int, Watched], ranks: list[psutil.Process], step: int) -> None:
    for rank in ranks:
        try:
            memory, handles = rank.memory_info().rss, rank.num_fds()
        except psutil.Error:
            continue  # it has just ended
        seen = watched.setdefault(rank.pid, Watched())
        seen.steps.append(step)
        seen.memory.append(memory)
        seen.handles.append(handles)
