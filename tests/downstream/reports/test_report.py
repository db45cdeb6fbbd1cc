from __future__ import annotations

import numpy as np

from downstream.reports.report import (
    Column,
    _labelled_shares,
    _learned_note,
    summary_table,
)
from downstream.tasks.classification import Task
from downstream.tasks.scores import Scores, score
from downstream.training.experiment import Outcome, Results
from downstream.training.fit import History

LABELS = np.array([0, 1, 1, 0])


def outcome(seed: int, mix: str, shares: dict[str, list[float]], num_wrong: int) -> Outcome[Scores]:
    predicted = LABELS.copy()
    predicted[:num_wrong] = 1 - predicted[:num_wrong]
    scores = {split: score(LABELS, predicted, ("a", "b")) for split in ("validation", "test")}
    gammas = {place: float(seed) for place in shares}
    return Outcome(mix, seed, History(), scores, shares, gammas, seconds=1.0)


def test_summary_has_the_mean_share_of_every_place() -> None:
    task = Task({}, ("a", "b"), {})
    both = [
        outcome(1, "trainable", {"input": [0.2, 0.8], "output": [0.5, 0.5]}, 0),
        outcome(2, "trainable", {"input": [0.4, 0.6], "output": [0.7, 0.3]}, 2),
    ]
    results = Results(task, outcomes=[*both, outcome(1, "none", {}, 1)])
    _, _, trainable, none = summary_table(results).splitlines()
    assert [cell.strip() for cell in trainable.strip("|").split("|")] == [
        "trainable",
        "75.00 ± 35.36",
        "75.00 ± 35.36",
        "75.00 ± 35.36",
        "input 0.30 0.70; output 0.60 0.40",
        "input 1.50; output 1.50",
    ]
    assert list(_labelled_shares(results)) == ["trainable (input)", "trainable (output)"]
    assert [cell.strip() for cell in none.strip("|").split("|")][1:3] == ["75.00", "75.00"]
    assert none.endswith("| -                                 | -                       |")


def test_single_place_is_not_named_and_learned_shares_are_explained() -> None:
    task = Task({}, ("a", "b"), {})
    results = Results(task, outcomes=[outcome(1, "trainable", {"input": [0.2, 0.8]}, 0)])
    assert "| 0.20 0.80 | 1.00  |" in summary_table(results)
    assert _learned_note(results) == ""
    assert list(_labelled_shares(results)) == ["trainable"]
    results.outcomes.append(outcome(1, "learned", {"input": [0.2, 0.8]}, 0))
    assert "squared norm" in _learned_note(results)


def test_mean_and_deviation_of_a_plain_number_have_the_same_decimals() -> None:
    results = Results(
        Task({}, ("a", "b"), {}), outcomes=[outcome(s, "none", {}, s) for s in (1, 2)]
    )
    column = Column("test", "accuracy", "RMSE", is_share=False)
    assert "| 0.6250 ± 0.1768 |" in summary_table(results, [column])
