"""The records of trained heads: one small JSON file for each command, from which pages are written.

A record contains the command, the scores and curves of all seeds, and the costs. It can be kept
when the output of the command, with its heads and predictions, is deleted.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from downstream.reports.pages import MAX_RESULTS_BYTES, RESULTS_FILE
from downstream.tasks.scores import mean_and_spread
from experiments.stages import Done


@dataclass(frozen=True)
class HeadResults:
    """The results of one command."""

    outcomes: list[dict[str, Any]]
    processor_seconds: float  # of the whole command, with all seeds
    peak_memory_gib: float

    def score(self, split: str) -> tuple[float, float]:
        """Return the mean and the standard deviation of the main score over seeds."""
        return mean_and_spread([outcome["scores"][split]["main"] for outcome in self.outcomes])

    def first_score(self, split: str) -> float:
        """Return the main score with the first seed."""
        return float(self.outcomes[0]["scores"][split]["main"])

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


def write_record(path: Path, command: Sequence[str], done: Done, output: Path) -> None:
    """Write the record of a command from its report in `output`."""
    report: dict[str, Any] = read_json(output / RESULTS_FILE, CheckpointError, MAX_RESULTS_BYTES)
    outcomes = [
        {
            "scores": {split: {"main": scores["main"]} for split, scores in own["scores"].items()},
            "history": {key: own["history"][key] for key in ("validation_accuracy", "best_epoch")},
            "shares": own["shares"],
            "seconds": own["seconds"],
        }
        for own in report["outcomes"]
    ]
    tree = {
        "command": list(command),
        "seconds": done.seconds,
        "processor_seconds": done.processor_seconds,
        "peak_memory_gib": done.peak_memory_gib,
        "outcomes": outcomes,
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")


def is_recorded(path: Path, command: Sequence[str]) -> bool:
    """Whether there is a record of this command."""
    if not path.is_file():
        return False
    command_of_record: list[str] = read_json(path, CheckpointError)["command"]
    return command_of_record == list(command)


def read_record(path: Path) -> HeadResults | None:
    """Return the results of a command that has finished, else None."""
    if not path.is_file():
        return None
    tree: dict[str, Any] = read_json(path, CheckpointError)
    # A command uses one thread, so without other work its time is the processor time.
    processor_seconds = tree.get("processor_seconds") or tree["seconds"]
    return HeadResults(tree["outcomes"], processor_seconds, tree["peak_memory_gib"])


def epochs_to_reach(curve: list[float], goal: float) -> int | None:
    """Return the first epoch (from 1) whose score is at least `goal`."""
    return next((epoch for epoch, score in enumerate(curve, 1) if score >= goal), None)
