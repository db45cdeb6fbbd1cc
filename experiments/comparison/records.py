"""The recorded figures of a comparison, from which the page is written."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from downstream.tasks.scores import mean_and_spread
from experiments.comparison.features import SYSTEM_FILE
from experiments.comparison.learning_curve import LearningCurve
from experiments.comparison.systems import SYSTEMS
from experiments.comparison.tasks import TASKS


@dataclass(frozen=True)
class Records:
    """All figures by system; a system without scores is left out."""

    systems: dict[str, dict[str, Any]]  # contents of system.json
    facts: dict[str, dict[str, Any]]
    scores: dict[tuple[str, str], dict[str, Any]]  # by system and task
    trials: dict[str, dict[str, Any]]
    curves: dict[str, list[dict[str, Any]]]
    stages: list[dict[str, Any]]
    text: dict[str, Any]

    @classmethod
    def read(cls, work: Path) -> Records:
        """Read the records of all stages that are done."""
        scores = {
            (system, task): read_json(path, CheckpointError)
            for system in SYSTEMS
            for task in TASKS
            if (path := work / "scores" / f"{system}_{task}").is_file()
        }
        present = [name for name in SYSTEMS if any((name, task) in scores for task in TASKS)]
        if not present:
            raise CheckpointError(f"{work} has no scores; run the other parts first")
        directory = work / "systems"
        paths = sorted((work / "stages").glob("*.json"), key=lambda path: path.stat().st_mtime)
        return cls(
            systems={n: read_json(directory / n / SYSTEM_FILE, CheckpointError) for n in present},
            facts=_existing({n: work / "facts" / n for n in present}),
            scores=scores,
            trials=_existing({n: work / "trials" / f"{n}.json" for n in present}),
            curves={n: LearningCurve(directory / n / "curve.jsonl").points() for n in present},
            stages=[read_json(path, CheckpointError) for path in paths],
            text=read_json(work / "text" / "text.json", CheckpointError),
        )

    def test(self, system: str, task: str, share: str) -> tuple[float, float] | None:
        """Return the mean and the standard deviation of the test scores of all seeds."""
        result = self.scores.get((system, task), {"shares": {}})["shares"].get(share)
        return None if result is None else mean_and_spread(result["test"])

    def shares(self) -> list[str]:
        """Return the shares of labels that were used, from small to large."""
        names = {name for tree in self.scores.values() for name in tree["shares"]}
        return sorted(names, key=float)

    def num_seeds(self) -> int:
        """Return the number of seeds of the heads."""
        results = [r for tree in self.scores.values() for r in tree["shares"].values()]
        return min(len(result["test"]) for result in results)

    def versions(self) -> dict[str, str]:
        """Return the versions of all packages that were recorded."""
        trees = [*self.systems.values(), *self.facts.values()]
        found: dict[str, str] = {}
        for tree in trees:
            found |= tree.get("versions", {})
        return dict(sorted(found.items()))

    def training_memory_gib(self, system: str) -> float | None:
        """Return the peak memory of the processes that trained a system."""
        own = self.systems[system]["training"].get("memory_gib")
        if own is not None:
            return float(own)
        names = (f"{system}_training", f"{system}_training_forward", f"{system}_training_backward")
        peaks = [s["peak_memory_gib"] for s in self.stages if s["name"] in names]
        return max(peaks) if peaks else None


def lead_points(records: Records, system: str, other: str, share: str) -> float | None:
    """Return the mean difference of two systems over the tasks, in points."""
    differences = []
    for task in TASKS:
        a, b = records.test(system, task, share), records.test(other, task, share)
        if a is not None and b is not None:
            differences.append(100 * (a[0] - b[0]))
    return statistics.fmean(differences) if differences else None


def _existing(paths: dict[str, Path]) -> dict[str, dict[str, Any]]:
    return {n: read_json(path, CheckpointError) for n, path in paths.items() if path.is_file()}
