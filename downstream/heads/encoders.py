"""downstream/heads/encoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from downstream.heads.layers import (
    _classifier,
    _take,
    masked_max,
    masked_mean,
    reversed_places,
)
from downstream.settings.sections import HeadSettings


class PooledHead(nn.Module):
    """Pooled vectors, standardised by running statistics of the training texts, then linear."""

    def __init__(self, input_dim: int, settings: HeadSettings, num_classes: int) -> None:
        super().__init__()
        self.standardise = nn.BatchNorm1d(input_dim, affine=False)
        self.classify = _classifier(input_dim, settings, num_classes)

    def forward(self, pooled: Tensor, mask: Tensor | None, beside: Tensor | None) -> Tensor:
        scores: Tensor = self.classify(self.standardise(pooled.flatten(1)))
        return scores


class AttentionHead(nn.Module):
    """Each word says how much it matters; the weighted mean and the maximum over words decide."""

    def __init__(self, input_dim: int, settings: HeadSettings, num_classes: int) -> None:
        super().__init__()
        width = settings.encoder_dim
        self.project = nn.Linear(input_dim, width)
        self.attend = nn.Linear(width, 1)
        self.classify = _classifier(2 * width, settings, num_classes)

    def forward(self, words: Tensor, mask: Tensor, beside: Tensor | None) -> Tensor:
        hidden = torch.relu(self.project(words))  # (texts, words, width)
        asked = self.attend(torch.tanh(hidden)).squeeze(-1).masked_fill(~mask, -torch.inf)
        attended = torch.einsum("bt,btd->bd", asked.softmax(dim=1), hidden)
        scores: Tensor = self.classify(torch.cat([attended, masked_max(hidden, mask)], dim=-1))
        return scores


class RecurrentHead(nn.Module):
    """A bidirectional LSTM or GRU, then the maximum and the mean of its outputs over words.

    A second mix, if there is one, joins the outputs of the encoder before they are pooled. Each
    direction reads its words first and the padding last, where it does no harm: packed sequences
    were measured to take twice as long, most of it in clearing memory.
    """

    def __init__(
        self, input_dim: int, beside_dim: int, settings: HeadSettings, num_classes: int
    ) -> None:
        super().__init__()
        kind = nn.LSTM if settings.kind == "bilstm" else nn.GRU
        self.rightward = kind(input_dim, settings.encoder_dim, batch_first=True)
        self.leftward = kind(input_dim, settings.encoder_dim, batch_first=True)
        width = 2 * settings.encoder_dim + beside_dim
        self.classify = _classifier(2 * width, settings, num_classes)

    def forward(self, words: Tensor, mask: Tensor, beside: Tensor | None) -> Tensor:
        turned = reversed_places(mask)
        outputs = [
            self.rightward(words)[0],
            _take(self.leftward(_take(words, turned))[0], turned),
        ]
        joined = torch.cat(outputs if beside is None else [*outputs, beside], dim=-1)
        pooled = [masked_max(joined, mask), masked_mean(joined, mask)]
        scores: Tensor = self.classify(torch.cat(pooled, dim=-1))
        return scores
