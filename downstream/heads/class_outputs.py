"""The outputs of heads that classify: scores of classes, their loss, predictions and evaluation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional as F

from downstream.features.batches import Ids
from downstream.heads.head import Evaluation

Probabilities = npt.NDArray[np.float32]  # (examples, classes)

MIN_PROBABILITY = 1e-12


class ClassOutputs:
    """A mixin of heads that map an example to the scores of classes."""

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the scores, without the penalty of the mixes."""
        return F.cross_entropy(scores, labels)

    def count_correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the number of examples whose highest score is that of their label, as a tensor."""
        return (scores.argmax(dim=1) == labels).sum()

    def decode(self, scores: Tensor, labels: Tensor | None = None) -> Probabilities:
        """Return the probability of each class (examples, classes)."""
        probabilities: Probabilities = scores.softmax(dim=1).cpu().numpy()
        return probabilities

    def evaluate(self, probabilities: Probabilities, labels: Ids) -> Evaluation:
        """Compare decoded probabilities with the labels.

        A label that is not the index of a class is never predicted and does not count in the loss.
        """
        known = np.flatnonzero(labels < probabilities.shape[1])
        chosen = probabilities[known, labels[known]]
        loss = -np.log(np.maximum(chosen, MIN_PROBABILITY)).mean() if len(known) else 0.0
        return Evaluation(
            loss=float(loss),
            accuracy=float((probabilities.argmax(axis=1) == labels).mean()),
        )
