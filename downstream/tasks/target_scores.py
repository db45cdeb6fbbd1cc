"""Scores of predictions for texts with any number of labels, and for texts with a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from downstream.heads.text_targets import Indicators, Numbers, micro_f1
from downstream.tasks.scores import ClassScores


@dataclass(frozen=True)
class LabelSetScores:
    """The scores of one split.

    The micro scores count pairs of a text and a label; macro F1 is the plain mean over the labels
    that occur, in the texts or in the predictions. `exact` is the share of texts whose labels are
    all predicted correctly. A division by zero counts as 0.
    """

    micro_f1: float
    macro_f1: float
    micro_precision: float
    micro_recall: float
    exact: float
    by_label: dict[str, ClassScores]

    @property
    def main(self) -> float:
        """The score by which heads are compared: micro F1."""
        return self.micro_f1


@dataclass(frozen=True)
class NumberScores:
    """The scores of one split: R^2, correlations, and errors in the unit of the numbers.

    R^2 is 1 - MSE / variance; a score that is not defined is 0.
    """

    r2: float
    pearson: float
    spearman: float
    rmse: float
    mae: float

    @property
    def main(self) -> float:
        """The score by which heads are compared: R^2, in the order of the negative RMSE."""
        return self.r2


def score_label_sets(
    labels: Indicators, chosen: npt.NDArray[np.bool_], names: Sequence[str]
) -> LabelSetScores:
    """Compare the predicted labels with the true ones; both are (texts, labels)."""
    truth = labels > 0
    by_label = {name: _one_label(truth[:, i], chosen[:, i]) for i, name in enumerate(names)}
    occurring = truth | chosen
    f1 = [s.f1 for i, s in enumerate(by_label.values()) if occurring[:, i].any()]
    together = _one_label(truth.ravel(), chosen.ravel())
    return LabelSetScores(
        micro_f1=together.f1,
        macro_f1=float(np.mean(f1)) if f1 else 0.0,
        micro_precision=together.precision,
        micro_recall=together.recall,
        exact=float((truth == chosen).all(axis=1).mean()),
        by_label=by_label,
    )


def _one_label(truth: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> ClassScores:
    num_true, num_chosen = int(truth.sum()), int(chosen.sum())
    num_correct = int((truth & chosen).sum())
    precision, recall = num_correct / max(1, num_chosen), num_correct / max(1, num_true)
    return ClassScores(precision, recall, micro_f1(truth, chosen), num_true)


def score_numbers(numbers: Numbers, predicted: Numbers) -> NumberScores:
    """Compare predicted numbers with the true ones."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    errors = predicted.astype(np.float64) - numbers
    variance = float(numbers.var(dtype=np.float64))
    return NumberScores(
        r2=1 - float((errors**2).mean()) / variance if variance > 0 else 0.0,
        pearson=pearson(numbers, predicted),
        spearman=pearson(rankdata(numbers), rankdata(predicted)),
        rmse=float(np.sqrt((errors**2).mean())),
        mae=float(np.abs(errors).mean()),
    )


def pearson(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    """Return Pearson's correlation coefficient; 0 if it is not defined."""
    x, y = (values.astype(np.float64) - values.mean(dtype=np.float64) for values in (first, second))
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return float(np.clip(x @ y / norms, -1, 1)) if norms > 0 else 0.0
