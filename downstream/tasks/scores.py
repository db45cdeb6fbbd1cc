"""Scores of predictions: accuracy, macro F1, precision, recall, and the confusion matrix."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from downstream.texts.labelled import Ids


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class; `support` is its number of texts."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Scores:
    """The scores of one split.

    `confusion[i][j]` is the number of texts of class i that were predicted as class j. The macro
    scores are plain means over the classes that occur, in the labels or in the predictions; a
    division by zero counts as 0.
    """

    accuracy: float
    macro_f1: float
    macro_precision: float
    macro_recall: float
    by_class: dict[str, ClassScores]
    confusion: tuple[tuple[int, ...], ...]

    @property
    def main(self) -> float:
        """The score by which heads are compared: the accuracy."""
        return self.accuracy

    def confusions(self, labels: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return true label, predicted label and number of examples, the most frequent first."""
        rows = [
            (labels[i], labels[k], count)
            for i, row in enumerate(self.confusion)
            for k, count in enumerate(row)
            if i != k and count
        ]
        return sorted(rows, key=lambda row: -row[2])

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return asdict(self)


def score(truth: Ids, predicted: Ids, classes: Sequence[str]) -> Scores:
    """Compare predicted label ids (indices into `classes`) with the true ones."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    if len(truth) != len(predicted) or not len(truth):
        raise ValueError(
            f"there are {len(truth)} labels and {len(predicted)} predictions; their numbers must "
            "be equal and above 0"
        )
    places = np.arange(len(classes))
    precision, recall, f1, support = precision_recall_fscore_support(
        truth, predicted, labels=places, zero_division=0
    )
    occurs = np.union1d(truth, predicted)
    confusion = confusion_matrix(truth, predicted, labels=places)
    return Scores(
        accuracy=float(np.mean(truth == predicted)),
        macro_f1=float(f1[occurs].mean()),
        macro_precision=float(precision[occurs].mean()),
        macro_recall=float(recall[occurs].mean()),
        by_class={
            name: ClassScores(float(precision[i]), float(recall[i]), float(f1[i]), int(support[i]))
            for i, name in enumerate(classes)
        },
        confusion=tuple(tuple(int(n) for n in row) for row in confusion),
    )


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for one value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
