"""From a batch of layers to scores of the classes: mixes, word vectors, a head.

The input of a word is `[x; ELMo]`: its own vector, if a file of vectors is given, beside the mix.
Heads of plain pooling mix the pooled layers: for the mean this is the mean of the mix, exactly;
for the maximum it is a mix of the layers' maxima, not the maximum of the mix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from downstream.dropout import Dropout
from downstream.features import Batch, poolings_of
from downstream.mixes import Mix, make_mix
from downstream.settings import HeadSettings, MixSettings


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


def reversed_places(mask: Tensor) -> Tensor:
    """Where to take each word from to turn a text round and leave its padding in place."""
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def _take(words: Tensor, places: Tensor) -> Tensor:
    return words.gather(1, places.unsqueeze(-1).expand(-1, -1, words.shape[-1]))


def masked_max(words: Tensor, mask: Tensor) -> Tensor:
    """The maximum over words, padding left out."""
    return words.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1)


def masked_mean(words: Tensor, mask: Tensor) -> Tensor:
    """The mean over words, padding left out."""
    summed = words.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)
    return summed / mask.sum(dim=1, keepdim=True)


def _classifier(input_dim: int, settings: HeadSettings, num_classes: int) -> nn.Sequential:
    parts: list[nn.Module] = [Dropout(settings.dropout)]
    if settings.hidden:
        parts += [nn.Linear(input_dim, settings.hidden), nn.ReLU()]
        parts += [Dropout(settings.dropout)]
    parts.append(nn.Linear(settings.hidden or input_dim, num_classes))
    return nn.Sequential(*parts)
