"""The model from a batch of layers to class scores: mixes, word vectors and a head.

The input of a word is `[x; ELMo]`: its own vector, if word vectors are given, and the mix. Pooled
heads mix the pooled layers. For the mean this is exactly the mean of the mix; for the maximum it is
a mix of the layers' maxima, which is not the maximum of the mix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from downstream.features.batches import Batch, FeatureShape
from downstream.heads.class_outputs import ClassOutputs
from downstream.heads.encoders import AttentionHead, PooledHead, RecurrentHead
from downstream.heads.head import MixedModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings


class TextNetwork(MixedModel):
    """The mixes and the head: everything that is trained. Subclasses add the loss and `decode`."""

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
        inputs, beside = self._inputs(batch)
        scores: Tensor = self.head(inputs, batch.mask, beside)
        return scores

    def word_weights(self, batch: Batch) -> Tensor | None:
        """Return the attention of each word (texts, words), or None for other heads."""
        if not isinstance(self.head, AttentionHead) or batch.mask is None:
            return None
        return self.head.word_weights(self._inputs(batch)[0], batch.mask)

    def _inputs(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the input of the head, and the mix that joins its outputs, if there is one."""
        mixed = self.mixed(batch)
        parts = [part for part in (batch.vectors, mixed.get("input")) if part is not None]
        return torch.cat(parts, dim=-1), mixed.get("output")


class TextModel(ClassOutputs, TextNetwork):
    """The network with one output per class."""
