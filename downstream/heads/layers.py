"""Building blocks of heads: dropout, output layers, masked pooling, biLSTMs over padded texts."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn


class OutputSettings(Protocol):
    """The settings of the layers before the output."""

    @property
    def dropout(self) -> float: ...

    @property
    def hidden(self) -> int:
        """The width of the hidden layer; 0 for none."""


_EMBEDDING_SCALE = 0.1


class Dropout(nn.Module):
    """Set a share of the numbers to zero in training, and scale up the rest.

    It costs half as much as torch's dropout on a CPU, where drawing the mask takes most of a small
    step. With `per_text`, the same dimensions of (texts, words, dim) are dropped in all words of a
    text: an encoder cannot recover a dropped number from the next word, and the mask is small. If
    examples consist of several texts (`texts_per_example`), the texts of an example share a mask,
    so that equal words stay equal; a batch has the first texts of all examples, then the second.
    """

    def __init__(self, share: float, per_text: bool = False) -> None:
        super().__init__()
        self.share = share
        self.per_text = per_text
        self.texts_per_example = 1

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return values
        num_examples = len(values) // self.texts_per_example
        like = values[:num_examples, :1] if self.per_text else values
        scale = (torch.rand_like(like) >= self.share) / (1 - self.share)
        if self.per_text and self.texts_per_example > 1:
            scale = scale.repeat(self.texts_per_example, 1, 1)
        return values * scale


def small_embedding(count: int, dim: int, padding_idx: int | None = None) -> nn.Embedding:
    """Return an embedding of features, small compared with the outputs that it is added to."""
    embedding = nn.Embedding(count, dim, padding_idx=padding_idx)
    with torch.no_grad():
        embedding.weight.mul_(_EMBEDDING_SCALE)
    return embedding


def output_layers(input_dim: int, settings: OutputSettings, num_classes: int) -> nn.Sequential:
    """Return the layers from a text's vector to the scores of the classes."""
    parts: list[nn.Module] = [Dropout(settings.dropout)]
    if settings.hidden:
        parts += [nn.Linear(input_dim, settings.hidden), nn.ReLU()]
        parts += [Dropout(settings.dropout)]
    parts.append(nn.Linear(settings.hidden or input_dim, num_classes))
    return nn.Sequential(*parts)


def masked_max(words: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum over words (texts, words, dim), without padding: (texts, dim)."""
    return words.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1)


def masked_mean(words: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over words (texts, words, dim), without padding: (texts, dim)."""
    summed = words.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)
    return summed / mask.sum(dim=1, keepdim=True)


def reversed_places(mask: Tensor) -> Tensor:
    """Return the indices (texts, words) that reverse each text and leave its padding at the end."""
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def take_places(words: Tensor, places: Tensor) -> Tensor:
    """Return the words (texts, words, dim) at the given indices (texts, words) of each text."""
    return words.gather(1, places.unsqueeze(-1).expand(-1, -1, words.shape[-1]))


class BiLstmLayer(nn.Module):
    """Two LSTMs, each of which reads the words of a sentence first and its padding last."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.rightward = nn.LSTM(input_dim, dim, batch_first=True)
        self.leftward = nn.LSTM(input_dim, dim, batch_first=True)

    def forward(self, words: Tensor, places: Tensor) -> Tensor:
        """Return the outputs of both; `places` reverses each sentence."""
        leftward = take_places(self.leftward(take_places(words, places))[0], places)
        return torch.cat([self.rightward(words)[0], leftward], dim=-1)
