from __future__ import annotations

import json

import numpy as np
import pytest

from downstream.tasks.scores import mean_and_spread, score


def test_scores_of_a_small_example() -> None:
    truth = np.array([0, 0, 0, 1, 1, 2])
    predicted = np.array([0, 0, 1, 1, 1, 0])
    scores = score(truth, predicted, ["a", "b", "c"])
    assert scores.accuracy == pytest.approx(4 / 6)
    assert scores.by_class["a"].precision == pytest.approx(2 / 3)
    assert scores.by_class["a"].recall == pytest.approx(2 / 3)
    assert scores.by_class["b"].precision == pytest.approx(2 / 3)
    assert scores.by_class["b"].recall == 1.0
    assert scores.by_class["c"].f1 == 0.0
    assert scores.by_class["c"].support == 1
    assert scores.macro_f1 == pytest.approx((2 / 3 + 0.8 + 0) / 3)
    assert scores.confusion == ((2, 1, 0), (0, 2, 0), (1, 0, 0))
    assert json.loads(json.dumps(scores.as_json()))["confusion"][0] == [2, 1, 0]


def test_macro_scores_ignore_absent_classes() -> None:
    from sklearn.metrics import f1_score

    truth, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    scores = score(truth, predicted, ["a", "b", "never"])
    assert scores.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert scores.by_class["never"].support == 0


def test_rejects_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="2 labels and 1 predictions"):
        score(np.array([0, 1]), np.array([0]), ["a", "b"])


def test_mean_and_standard_deviation() -> None:
    assert mean_and_spread([0.5]) == (0.5, 0.0)
    assert mean_and_spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
