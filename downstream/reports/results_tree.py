"""The contents of results.json of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bilm.distributed.process import peak_memory_bytes
from downstream.settings.common import TaskSettings
from downstream.tasks.splits import SPLITS
from downstream.training.experiment import Outcome, Results, spread_of

FORMAT = "bilm-report"


def results_tree(
    results: Results[Any], settings: TaskSettings, fields: Mapping[str, Any], figures: Sequence[str]
) -> dict[str, Any]:
    """Return results.json: `fields` of the task, and the scores `figures` averaged over seeds."""
    chosen = results.chosen()
    bilm = chosen.description.bilm
    return {
        "format": FORMAT,
        "version": 1,
        "settings": settings.model_dump(mode="json"),
        "bilm": None if bilm is None else bilm.model_dump(mode="json"),
        **fields,
        "known_word_types": results.known_words,
        "summary": {mix: _summary(outcomes, figures) for mix, outcomes in results.by_mix().items()},
        "best": {"mix": chosen.outcome.mix, "seed": chosen.outcome.seed},
        "outcomes": [_outcome_tree(outcome) for outcome in results.outcomes],
        "seconds": results.seconds,
        "peak_memory_gib": peak_memory_bytes() / 2**30,
    }


def _outcome_tree(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return an outcome as a JSON object; every split has the score `main`."""
    tree = asdict(outcome)
    for split, scores in outcome.scores.items():
        tree["scores"][split]["main"] = scores.main
    return tree


def _summary(
    outcomes: Sequence[Outcome[Any]], figures: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean and standard deviation over seeds, by split and score."""
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for split in SPLITS:
        summary[split] = {}
        for figure in figures:
            mean, std = spread_of(outcomes, split, figure)
            summary[split][figure] = {"mean": mean, "std": std}
    return summary
