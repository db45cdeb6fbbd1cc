"""The targets of texts besides one class: heads for any number of labels, and for a number.

Both have the network of `TextModel`, and differ in the loss, in how outputs are decoded, and in the
score by which epochs are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from bilm.files.sections import Name, Section
from downstream.features.batches import FeatureShape
from downstream.heads.class_outputs import MIN_PROBABILITY
from downstream.heads.head import Evaluation
from downstream.heads.text_model import TextNetwork
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings, TargetKind, Threshold

LabelSets = npt.NDArray[Any]  # (texts,) with the fields `probability` and `chosen`: (labels)
Indicators = npt.NDArray[np.float32]  # (texts, labels): 1 for each label of a text, else 0
Numbers = npt.NDArray[np.float32]  # (texts,)

DEFAULT_THRESHOLD = 0.5


class TargetRecord(Section):
    """What a head predicts for a text; `mean` and `std` are those of the training numbers."""

    kind: TargetKind = "class"
    separator: Name = "|"
    threshold: Threshold = DEFAULT_THRESHOLD
    mean: float = 0.0
    std: Annotated[float, Field(gt=0)] = 1.0


def number_target(numbers: npt.NDArray[Any]) -> TargetRecord:
    """Return the target of a regression that is trained on these numbers.

    If they are all equal, they are only centered.
    """
    values = numbers.astype(np.float64)
    std = float(values.std()) or 1.0
    return TargetRecord(kind="regression", mean=float(values.mean()), std=std)


@dataclass(frozen=True)
class Outputs:
    """The number of outputs of a head, and what they are."""

    count: int
    target: TargetRecord


class _TargetModel(TextNetwork):
    """The network for another target than a class."""

    def __init__(
        self,
        outputs: Outputs,
        kind: MixKind,
        mix: MixSettings,
        head: HeadSettings,
        shape: FeatureShape,
        seed: int = 0,
    ) -> None:
        super().__init__(kind, mix, head, shape, outputs.count, seed)
        self._prepare(outputs.target)

    def _prepare(self, target: TargetRecord) -> None:
        """Keep what the loss and the predictions depend on."""
        raise NotImplementedError


class LabelSetModel(_TargetModel):
    """A head with a sigmoid per label.

    The threshold of the probabilities is part of its state. If it is chosen on the validation
    texts, `evaluate` sets it to the one with the highest micro F1.
    """

    threshold: Tensor

    def _prepare(self, target: TargetRecord) -> None:
        self._is_chosen = target.threshold == "validation"
        initial = DEFAULT_THRESHOLD if self._is_chosen else float(target.threshold)
        self.register_buffer("threshold", torch.tensor(initial))

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over texts and labels."""
        return F.binary_cross_entropy_with_logits(scores, labels)

    def count_correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the sum over texts of the share of labels that are predicted correctly."""
        chosen = scores.sigmoid() >= self.threshold
        return (chosen == labels.bool()).float().mean(dim=1).sum()

    def decode(self, scores: Tensor, labels: Tensor | None = None) -> LabelSets:
        """Return the probability of each label, and whether it is predicted."""
        probabilities = scores.sigmoid()
        num_labels = scores.shape[1]
        fields = [("probability", np.float32, (num_labels,)), ("chosen", np.bool_, (num_labels,))]
        result = np.empty(len(scores), dtype=fields)
        result["probability"] = probabilities.cpu().numpy()
        result["chosen"] = (probabilities >= self.threshold).cpu().numpy()
        return result

    def evaluate(self, predictions: LabelSets, labels: Indicators) -> Evaluation:
        """Compare decoded predictions with the labels; the score is micro F1."""
        probabilities, chosen = predictions["probability"], predictions["chosen"]
        if self._is_chosen:
            self.threshold.fill_(best_threshold(probabilities, labels))
            chosen = probabilities >= self.threshold.item()
        of_truth = np.where(labels > 0, probabilities, 1 - probabilities)
        loss = float(-np.log(np.maximum(of_truth, MIN_PROBABILITY)).mean())
        return Evaluation(loss=loss, accuracy=micro_f1(labels > 0, chosen))


class NumberModel(_TargetModel):
    """A head with one output, the standardized number."""

    def _prepare(self, target: TargetRecord) -> None:
        self._mean, self._std = target.mean, target.std

    def loss(self, scores: Tensor, numbers: Tensor) -> Tensor:
        """Return the mean squared error of the standardized numbers."""
        return self._squared_errors(scores, numbers).mean()

    def count_correct(self, scores: Tensor, numbers: Tensor) -> Tensor:
        """Return the sum over texts of 1 minus the squared error of the standardized number."""
        return (1 - self._squared_errors(scores, numbers)).sum()

    def _squared_errors(self, scores: Tensor, numbers: Tensor) -> Tensor:
        return (scores.squeeze(1) - (numbers - self._mean) / self._std) ** 2

    def decode(self, scores: Tensor, numbers: Tensor | None = None) -> Numbers:
        """Return the predicted numbers."""
        predicted: Numbers = (self._mean + self._std * scores.squeeze(1)).cpu().numpy()
        return predicted

    def evaluate(self, predictions: Numbers, numbers: Numbers) -> Evaluation:
        """Compare decoded predictions with the numbers.

        The score is R², or 0 if all numbers are equal. A correlation would also rank epochs highly
        in which the head has not yet learned the scale of the numbers.
        """
        squared_error = float(((predictions.astype(np.float64) - numbers) ** 2).mean())
        variance = float(numbers.var(dtype=np.float64))
        r2 = 1 - squared_error / variance if variance > 0 else 0.0
        return Evaluation(squared_error / self._std**2, r2)


def micro_f1(truth: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> float:
    """Return F1 over all pairs of a text and a label; 0 if there are no labels at all."""
    total = int(truth.sum()) + int(chosen.sum())
    return 2 * int((truth & chosen).sum()) / total if total else 0.0


def best_threshold(probabilities: npt.NDArray[np.float32], labels: Indicators) -> float:
    """Return the threshold with the highest micro F1, halfway between two probabilities.

    Of several, the highest is returned; the default, if no text has a label.
    """
    truth = labels.ravel() > 0
    if not truth.any():
        return DEFAULT_THRESHOLD
    order = np.argsort(-probabilities.ravel(), kind="stable")
    ranked = probabilities.ravel()[order].astype(np.float64)
    num_chosen = np.arange(1, len(ranked) + 1)
    f1 = 2 * np.cumsum(truth[order]) / (num_chosen + truth.sum())
    following = np.append(ranked[1:], 0.0)
    f1[following == ranked] = -1  # equal probabilities are on the same side
    best = int(f1.argmax())
    return float((ranked[best] + following[best]) / 2)
