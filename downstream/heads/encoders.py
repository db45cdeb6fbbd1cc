"""Heads, which map the vectors of a text's words, or its pooled vectors, to class scores.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from downstream.heads.layers import (
    masked_max,
    masked_mean,
    output_layers,
    reversed_places,
    take_places,
)
from downstream.settings.sections import HeadSettings


class PooledHead(nn.Module):
    """Output layers on pooled vectors, standardized by running statistics of the training texts."""

    def __init__(self, input_dim: int, settings: HeadSettings, num_classes: int) -> None:
        super().__init__()
        self.standardize = nn.BatchNorm1d(input_dim, affine=False)
        self.classify = output_layers(input_dim, settings, num_classes)

    def forward(self, pooled: Tensor, mask: Tensor | None, beside: Tensor | None) -> Tensor:
        scores: Tensor = self.classify(self.standardize(pooled.flatten(1)))
        return scores


class AttentionHead(nn.Module):
    """Output layers on a mean of the words, weighted by learned attention, and their maximum."""

    def __init__(self, input_dim: int, settings: HeadSettings, num_classes: int) -> None:
        super().__init__()
        width = settings.encoder_dim
        self.project = nn.Linear(input_dim, width)
        self.attend = nn.Linear(width, 1)
        self.classify = output_layers(2 * width, settings, num_classes)

    def forward(self, words: Tensor, mask: Tensor, beside: Tensor | None) -> Tensor:
        hidden = torch.relu(self.project(words))  # (texts, words, width)
        attended = torch.einsum("bt,btd->bd", self._attention(hidden, mask), hidden)
        scores: Tensor = self.classify(torch.cat([attended, masked_max(hidden, mask)], dim=-1))
        return scores

    def word_weights(self, words: Tensor, mask: Tensor) -> Tensor:
        """Return the weight of each word in the mean (texts, words); 0 for padding."""
        return self._attention(torch.relu(self.project(words)), mask)

    def _attention(self, hidden: Tensor, mask: Tensor) -> Tensor:
        logits = self.attend(torch.tanh(hidden)).squeeze(-1).masked_fill(~mask, -torch.inf)
        weights: Tensor = logits.softmax(dim=1)
        return weights


class RecurrentHead(nn.Module):
    """Output layers on the maximum and the mean of the outputs of a bidirectional LSTM or GRU.

    A second mix, if there is one, is concatenated with the outputs of the encoder before they are
    pooled. Each direction reads the words of a text first and its padding last, where it has no
    effect. Packed sequences took twice as long, mostly because of clearing memory.
    """

    def __init__(
        self, input_dim: int, beside_dim: int, settings: HeadSettings, num_classes: int
    ) -> None:
        super().__init__()
        kind = nn.LSTM if settings.kind == "bilstm" else nn.GRU
        self.rightward = kind(input_dim, settings.encoder_dim, batch_first=True)
        self.leftward = kind(input_dim, settings.encoder_dim, batch_first=True)
        width = 2 * settings.encoder_dim + beside_dim
        self.classify = output_layers(2 * width, settings, num_classes)

    def forward(self, words: Tensor, mask: Tensor, beside: Tensor | None) -> Tensor:
        places = reversed_places(mask)
        outputs = [
            self.rightward(words)[0],
            take_places(self.leftward(take_places(words, places))[0], places),
        ]
        joined = torch.cat(outputs if beside is None else [*outputs, beside], dim=-1)
        pooled = [masked_max(joined, mask), masked_mean(joined, mask)]
        scores: Tensor = self.classify(torch.cat(pooled, dim=-1))
        return scores
