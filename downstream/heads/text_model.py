"""The model from a batch of layers to class scores: mixes, word vectors and a head.

The input of a word is `[x; ELMo]`: its own vector, if word vectors are given, and the mix. Pooled
heads mix the pooled layers. For the mean this is exactly the mean of the mix; for the maximum it is
a mix of the layers' maxima, which is not the maximum of the mix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.features.batches import Batch, FeatureShape
from downstream.heads.encoders import AttentionHead, PooledHead, RecurrentHead
from downstream.heads.head import Evaluation, MixedModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings

Probabilities = npt.NDArray[np.float32]  # (texts, classes)

MIN_PROBABILITY = 1e-12


class TextModel(MixedModel):
    """The mixes and the head: everything that is trained."""

    def __init__(
        self,
        kind: MixKind,
        mix: MixSettings,
        head: HeadSettings,
        shape: FeatureShape,
        num_classes: int,
        seed: int = 0,
    ) -> None:
        super().__init__(kind, mix, head.elmo_at, shape, seed)
        widths = self.widths()
        input_dim = shape.vector_dim + widths.get("input", 0)
        self.head: nn.Module
        if shape.num_poolings:
            self.head = PooledHead(input_dim * shape.num_poolings, head, num_classes)
        elif head.kind == "attention":
            self.head = AttentionHead(input_dim, head, num_classes)
        else:
            self.head = RecurrentHead(input_dim, widths.get("output", 0), head, num_classes)

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores (texts, classes)."""
        mixed = self.mixed(batch)
        parts = [part for part in (batch.vectors, mixed.get("input")) if part is not None]
        scores: Tensor = self.head(torch.cat(parts, dim=-1), batch.mask, mixed.get("output"))
        return scores

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the scores, without the penalty of the mixes."""
        return F.cross_entropy(scores, labels)

    def count_correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the number of texts whose highest score is that of their label, as a tensor."""
        return (scores.argmax(dim=1) == labels).sum()

    def decode(self, scores: Tensor, labels: Tensor | None = None) -> Probabilities:
        """Return the probability of each class (texts, classes)."""
        probabilities: Probabilities = scores.softmax(dim=1).cpu().numpy()
        return probabilities

    def evaluate(self, probabilities: Probabilities, labels: npt.NDArray[Any]) -> Evaluation:
        """Compare decoded probabilities with the labels."""
        chosen = probabilities[np.arange(len(labels)), labels]
        return Evaluation(
            loss=float(-np.log(np.maximum(chosen, MIN_PROBABILITY)).mean()),
            accuracy=float((probabilities.argmax(axis=1) == labels).mean()),
        )
