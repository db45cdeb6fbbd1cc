"""Read the results of the heads that the commands have trained."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from downstream.reports.pages import MAX_RESULTS_BYTES, RESULTS_FILE
from downstream.tasks.scores import mean_and_spread
from experiments.task_table.heads import Heads


@dataclass(frozen=True)
class HeadResults:
    """The results of one command."""

    outcomes: list[dict[str, Any]]
    peak_memory_gib: float

    def score(self, split: str) -> tuple[float, float]:
        """Return the mean and the standard deviation of the main score over seeds."""
        return mean_and_spread([main_score(outcome, split) for outcome in self.outcomes])

    def seconds(self) -> float:
        """Return the median time to train a head."""
        return float(statistics.median(outcome["seconds"] for outcome in self.outcomes))

    def best_epochs(self) -> list[int]:
        """Return the epoch with the best validation score, for each seed."""
        return [outcome["history"]["best_epoch"] for outcome in self.outcomes]

    def validation_curves(self) -> list[list[float]]:
        """Return the validation score after each epoch, for each seed."""
        return [outcome["history"]["validation_accuracy"] for outcome in self.outcomes]

    def mix_shares(self) -> dict[str, list[float]]:
        """Return the mean weights of the layers in each mix, by its place."""
        first = self.outcomes[0]["shares"]
        return {
            place: [
                statistics.fmean(values)
                for values in zip(*(o["shares"][place] for o in self.outcomes), strict=True)
            ]
            for place in first
        }


def main_score(outcome: dict[str, Any], split: str) -> float:
    """Return the score by which the heads of a task are compared; accuracy for classifiers."""
    scores = outcome["scores"][split]
    return float(scores.get("main", scores.get("accuracy")))


def read_results(work: Path, heads: Heads) -> HeadResults | None:
    """Return the results of a command that has finished, else None."""
    if not (work / "stages" / f"{heads.name}.json").is_file():
        return None
    path = work / heads.name / RESULTS_FILE
    tree: dict[str, Any] = read_json(path, CheckpointError, MAX_RESULTS_BYTES)
    done: dict[str, Any] = read_json(work / "stages" / f"{heads.name}.json", CheckpointError)
    return HeadResults(tree["outcomes"], done["peak_memory_gib"])


def epochs_to_reach(curve: list[float], goal: float) -> int | None:
    """Return the first epoch (from 1) whose score is at least `goal`."""
    return next((epoch for epoch, score in enumerate(curve, 1) if score >= goal), None)
