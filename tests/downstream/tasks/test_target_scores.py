from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr  # type: ignore[import-untyped]
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
    root_mean_squared_error,
)

from downstream.tasks.target_scores import score_label_sets, score_numbers

RNG = np.random.default_rng(0)


def test_label_scores_agree_with_sklearn() -> None:
    truth, chosen = (RNG.random((50, 3)) < share for share in (0.3, 0.5))
    scores = score_label_sets(truth.astype(np.float32), chosen, ("a", "b", "c"))
    assert scores.main == scores.micro_f1 == pytest.approx(f1_score(truth, chosen, average="micro"))
    assert scores.macro_f1 == pytest.approx(f1_score(truth, chosen, average="macro"))
    assert scores.micro_precision == pytest.approx(precision_score(truth, chosen, average="micro"))
    assert scores.micro_recall == pytest.approx(recall_score(truth, chosen, average="micro"))
    assert scores.exact == pytest.approx(accuracy_score(truth, chosen))
    assert [s.support for s in scores.by_label.values()] == truth.sum(axis=0).tolist()
    assert scores.by_label["b"].f1 == pytest.approx(f1_score(truth[:, 1], chosen[:, 1]))


def test_macro_f1_ignores_labels_that_do_not_occur() -> None:
    truth = np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32)
    chosen = np.array([[True, False, False], [True, False, False]])
    assert score_label_sets(truth, chosen, ("a", "b", "c")).macro_f1 == pytest.approx(0.5)
    nothing = np.zeros((2, 3), dtype=np.float32)
    scores = score_label_sets(nothing, nothing > 0, ("a", "b", "c"))
    assert (scores.macro_f1, scores.micro_precision, scores.micro_recall) == (0, 0, 0)
    assert scores.exact == 1.0


def test_one_label_is_scored_as_a_label() -> None:
    truth = np.array([[1], [0], [1]], dtype=np.float32)
    scores = score_label_sets(truth, np.array([[True], [True], [False]]), ("a",))
    assert (scores.micro_precision, scores.micro_recall) == (0.5, 0.5)
    assert scores.by_label["a"].f1 == scores.micro_f1 == 0.5
    assert scores.by_label["a"].support == 2


def test_number_scores_agree_with_scipy() -> None:
    numbers = RNG.standard_normal(40).astype(np.float32).round(1)
    predicted = (numbers + RNG.standard_normal(40)).astype(np.float32)
    scores = score_numbers(numbers, predicted)
    assert scores.main == scores.r2 == pytest.approx(r2_score(numbers, predicted), rel=1e-5)
    assert scores.pearson == pytest.approx(pearsonr(numbers, predicted).statistic, abs=1e-6)
    assert scores.spearman == pytest.approx(spearmanr(numbers, predicted).statistic, abs=1e-6)
    assert scores.rmse == pytest.approx(root_mean_squared_error(numbers, predicted), rel=1e-5)
    assert scores.mae == pytest.approx(mean_absolute_error(numbers, predicted), rel=1e-5)


def test_scores_of_constant_numbers_are_zero() -> None:
    scores = score_numbers(np.ones(3, np.float32), np.arange(3, dtype=np.float32))
    assert (scores.r2, scores.pearson, scores.spearman) == (0, 0, 0)
    assert scores.rmse == pytest.approx(np.sqrt(2 / 3))
    falling = score_numbers(np.arange(3, dtype=np.float32), 7 - 2 * np.arange(3, dtype=np.float32))
    assert falling.pearson == pytest.approx(-1.0)
