"""From a batch of layers to scores of the classes: mixes, word vectors, a head.

The input of a word is `[x; ELMo]`: its own vector, if a file of vectors is given, beside the mix.
Heads of plain pooling mix the pooled layers: for the mean this is the mean of the mix, exactly;
for the maximum it is a mix of the layers' maxima, not the maximum of the mix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from downstream.features.batches import Batch, poolings_of
from downstream.heads.encoders import AttentionHead, PooledHead, RecurrentHead
from downstream.heads.mixes import Mix, make_mix
from downstream.settings.sections import HeadSettings, MixSettings


class TextModel(nn.Module):
    """Mixes and head together; all that is trained."""

    def __init__(
        self,
        kind: str,
        mix: MixSettings,
        head: HeadSettings,
        *,
        num_layers: int,
        dim: int,
        vector_dim: int,
        num_classes: int,
        seed: int = 0,
    ) -> None:
        super().__init__()
        places = {"input": ("input",), "output": ("output",), "both": ("input", "output")}
        num_poolings = len(poolings_of(head.kind)) if head.mode == "pooled" else 0
        self.mixes = nn.ModuleDict()
        if kind != "none":
            for i, place in enumerate(places[head.elmo_at]):
                self.mixes[place] = make_mix(kind, num_layers, dim, mix, seed + i, num_poolings)
        widths = {place: int(mix.out_dim) for place, mix in self._mixes()}
        input_dim = vector_dim + widths.get("input", 0)
        self.head: nn.Module
        if num_poolings:
            self.head = PooledHead(input_dim * num_poolings, head, num_classes)
        elif head.kind == "attention":
            self.head = AttentionHead(input_dim, head, num_classes)
        else:
            self.head = RecurrentHead(input_dim, widths.get("output", 0), head, num_classes)

    def forward(self, batch: Batch) -> Tensor:
        """The scores (texts, classes)."""
        mixed = {place: mix(batch.layers, batch.mask) for place, mix in self._mixes()}
        parts = [part for part in (batch.vectors, mixed.get("input")) if part is not None]
        scores: Tensor = self.head(torch.cat(parts, dim=-1), batch.mask, mixed.get("output"))
        return scores

    def regularization(self) -> Tensor:
        """What the mixes add to the loss."""
        return sum((mix.regularization() for _, mix in self._mixes()), torch.zeros(()))

    def shares(self) -> dict[str, list[float]]:
        """Of each layer in each mix."""
        return {place: mix.shares() for place, mix in self._mixes()}

    def scales(self) -> dict[str, float]:
        """Gamma of each mix."""
        return {place: mix.scale() for place, mix in self._mixes()}

    def _mixes(self) -> list[tuple[str, Mix]]:
        return [(place, mix) for place, mix in self.mixes.items() if isinstance(mix, Mix)]
