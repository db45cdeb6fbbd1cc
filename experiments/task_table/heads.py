"""Train all heads of the table: one command for each task, variant and share of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from experiments.stages import Stages
from experiments.task_table.plan import AT_INPUT, BASELINE, SHARES, VARIANTS, TaskPlan

VECTORS = "glove/glove.6B.50d.top60k.txt.gz"


@dataclass(frozen=True)
class Heads:
    """The heads of one task with one variant, trained with several seeds."""

    plan: TaskPlan
    variant: str
    share: float = 1.0

    @property
    def name(self) -> str:
        """The name of the stage and of its output."""
        part = "" if self.share == 1 else f"_{self.share:g}"
        return f"{self.plan.name}_{self.variant}{part}"


def all_heads(plans: Sequence[TaskPlan]) -> Iterator[Heads]:
    """Yield the variants of all tasks with all data, then two of them with shares of it."""
    for plan in plans:
        yield from (Heads(plan, variant) for variant in VARIANTS)
    for plan in plans:
        for share in SHARES:
            yield from (Heads(plan, variant, share) for variant in (BASELINE, AT_INPUT))


@dataclass(frozen=True)
class Runner:
    """Runs the commands, `jobs` at a time, each with one thread."""

    data: Path
    work: Path
    model: str
    jobs: int

    def run(self, heads: Sequence[Heads]) -> None:
        """Train all heads that are not trained yet; the first error ends the run."""
        stages = Stages(self.work)
        with ThreadPoolExecutor(self.jobs) as pool:
            started = [pool.submit(stages.run, own.name, self.command(own)) for own in heads]
            try:
                for future in started:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def command(self, heads: Heads) -> list[str]:
        """Return the command that trains these heads."""
        command = [*heads.plan.command(self.data, self.work), *VARIANTS[heads.variant]]
        command += ["--model", self.model, "--vectors", str(self.data / VECTORS)]
        command += ["--seeds", str(heads.plan.seeds), "--cache", str(self.work / "cache")]
        if heads.share != 1:
            command += ["--train-share", f"{heads.share:g}"]
        return [*command, "--output", str(self.work / heads.name), "--overwrite"]
