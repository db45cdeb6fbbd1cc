"""How good predictions are: accuracy, macro F1, precision and recall, and who is taken for whom."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassScores:
    """Of one class; `support` is how many texts are of it."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Scores:
    """Of one split. `confusion[i][j]` counts texts of class i that were taken for class j.

    The macro figures are plain means over the classes that occur, in truth or in predictions; what
    would divide by zero counts as 0.
    """

    accuracy: float
    macro_f1: float
    macro_precision: float
    macro_recall: float
    by_class: dict[str, ClassScores]
    confusion: tuple[tuple[int, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return asdict(self)


def score(truth: Ids, predicted: Ids, classes: Sequence[str]) -> Scores:
    """Compare label ids, places in `classes`, by scikit-learn's figures."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    if len(truth) != len(predicted) or not len(truth):
        raise ValueError(f"{len(truth)} labels and {len(predicted)} predictions cannot be compared")
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
    """The mean and the sample standard deviation (0 for one value), as of several seeds."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
