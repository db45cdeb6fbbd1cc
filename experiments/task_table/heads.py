"""Train all heads of the table: one command for each task, variant and share of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from experiments.stages import Stages
from experiments.task_table.adapted import adaptation_of
from experiments.task_table.outcomes import is_recorded, write_record
from experiments.task_table.plan import (
    ADAPTED,
    AT_INPUT,
    COMPARED,
    MIN_STEPS,
    SHARES,
    VARIANTS,
    TaskPlan,
)

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

    @property
    def seeds(self) -> int:
        """The number of seeds; one for the places that are only compared with each other."""
        return self.plan.seeds if self.variant in (*COMPARED, ADAPTED) else 1


def all_heads(plans: Sequence[TaskPlan]) -> Iterator[Heads]:
    """Yield the heads that are compared first, with all data and with shares of it; then others."""
    for share in (1.0, *SHARES):
        for plan in plans:
            yield from (Heads(plan, variant, share) for variant in COMPARED)
    for plan in plans:
        if plan.domain is not None:
            yield Heads(plan, ADAPTED)
        yield from (Heads(plan, variant) for variant in VARIANTS if variant not in COMPARED)


@dataclass(frozen=True)
class Places:
    """The directories of the data, of all output, and of the records of finished heads."""

    data: Path
    work: Path
    records: Path

    def portable(self, command: Sequence[str]) -> list[str]:
        """Return a command with DATA and WORK in place of the directories of this machine."""
        names = ((str(self.data), "DATA"), (str(self.work), "WORK"))
        words = list(command)
        for path, name in names:
            words = [word.replace(path, name) for word in words]
        return words


@dataclass(frozen=True)
class Runner:
    """Runs the commands, `jobs` at a time, each with one thread."""

    places: Places
    model: str
    jobs: int

    def run(self, heads: Sequence[Heads]) -> None:
        """Train all heads that are not recorded yet; the first error ends the run."""
        self.places.records.mkdir(parents=True, exist_ok=True)
        stages = Stages(self.places.work)
        with ThreadPoolExecutor(self.jobs) as pool:
            started = [pool.submit(self._run_one, own, stages) for own in heads]
            try:
                for future in started:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run_one(self, heads: Heads, stages: Stages) -> None:
        command = self.command(heads)
        record = self.places.records / f"{heads.name}.json"
        portable = self.places.portable(command)
        if is_recorded(record, portable):
            print(f"{heads.name}: already recorded", flush=True)
            return
        done = stages.run(heads.name, command)
        write_record(record, portable, done, self.places.work / heads.name)

    def command(self, heads: Heads) -> list[str]:
        """Return the command that trains these heads."""
        data, work = self.places.data, self.places.work
        is_adapted = heads.variant == ADAPTED
        model = str(adaptation_of(heads.plan, work).model) if is_adapted else self.model
        variant = AT_INPUT if is_adapted else heads.variant
        command = [*heads.plan.command(data, work), *VARIANTS[variant]]
        command += ["--model", model, "--vectors", str(data / VECTORS)]
        command += ["--seeds", str(heads.seeds), "--cache", str(work / "cache")]
        if heads.share != 1:
            command += ["--train-share", f"{heads.share:g}", "--min-steps", str(MIN_STEPS)]
        return [*command, "--output", str(work / heads.name), "--overwrite"]
