"""The layers of the biLM, combined into one vector per word: fixed, weighted, or by a network.

All but `learned` are `gamma * sum_j softmax(w)_j h_j` (`bilm.scalar_mix`): with w and gamma
trained, with both frozen at given or random values, or over a single layer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.errors import ConfigError
from bilm.model.scalar_mix import ScalarMix
from downstream.heads.layers import Dropout
from downstream.settings.sections import MixSettings


class Mix(nn.Module):
    """Layers (layers, texts, words, dim) to (texts, words, `out_dim`)."""

    out_dim: int

    def forward(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def regularization(self) -> Tensor:
        """What the mix adds to the loss."""
        return torch.zeros(())

    def shares(self) -> list[float]:
        """How much of each layer there is in the mix; they sum to 1."""
        raise NotImplementedError

    def scale(self) -> float:
        """Gamma, where there is one."""
        return 1.0


class WeightedMix(Mix):
    """A `ScalarMix` of some of the layers, by their places."""

    def __init__(
        self, num_layers: int, dim: int, layers: Sequence[int], mix: ScalarMix, dropout: float
    ) -> None:
        super().__init__()
        self.out_dim = dim
        self._num_layers = num_layers
        self._layers = list(layers)
        self.mix = mix
        self.dropout = Dropout(dropout, per_text=True)

    def forward(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        mixed: Tensor = self.dropout(self.mix([layers[i] for i in self._layers], mask))
        return mixed

    def regularization(self) -> Tensor:
        return self.mix.regularization()

    def shares(self) -> list[float]:
        shares = [0.0] * self._num_layers
        weights = F.softmax(self.mix.weights.detach(), dim=0).tolist()
        for i, weight in zip(self._layers, weights, strict=True):
            shares[i] = weight
        return shares

    def scale(self) -> float:
        return self.mix.gamma.item()


class LearnedMix(Mix):
    """A small network on the concatenated layers: one hidden layer with ReLU.

    Pooled layers (`num_poolings` above 0) are standardised first, by running statistics of the
    training texts: what tells texts apart is small beside what their means have in common.

    Its shares are those of the squared norm of the first matrix that fall to each layer: what the
    network listens to, not a weight in a sum.
    """

    def __init__(
        self,
        num_layers: int,
        dim: int,
        out_dim: int,
        *,
        layer_norm: bool = False,
        dropout: float = 0.0,
        num_poolings: int = 0,
    ) -> None:
        super().__init__()
        self.out_dim = out_dim
        self._num_layers = num_layers
        # One layer through a mix of one is that layer, in the mix's own normalisation.
        self._norm = ScalarMix(1, trainable=False, layer_norm=True) if layer_norm else None
        width = num_poolings * num_layers * dim
        self.standardise = nn.BatchNorm1d(width, affine=False) if num_poolings else None
        self.hidden = nn.Linear(num_layers * dim, out_dim)
        self.dropout = Dropout(dropout, per_text=True)

    def forward(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        parts = [layer if self._norm is None else self._norm([layer], mask) for layer in layers]
        joined = torch.cat(parts, dim=-1)  # (texts, words, layers * dim)
        if self.standardise is not None:
            joined = self.standardise(joined.flatten(1)).view_as(joined)
        hidden = F.relu(self.hidden(joined))
        if mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0.0)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def shares(self) -> list[float]:
        parts = self.hidden.weight.detach().chunk(self._num_layers, dim=1)
        norms = torch.stack([part.square().sum() for part in parts])
        return (norms / norms.sum()).tolist()


def make_mix(
    kind: str, num_layers: int, dim: int, settings: MixSettings, seed: int, num_poolings: int = 0
) -> Mix:
    """The mix called `kind` for a biLM of `num_layers` layers; the seed draws frozen weights.

    `num_poolings` says that the "words" are so many poolings of a text.
    """
    if kind == "learned":
        return LearnedMix(
            num_layers,
            dim,
            settings.dim or dim,
            layer_norm=settings.layer_norm,
            dropout=settings.dropout,
            num_poolings=num_poolings,
        )
    layers = range(num_layers)
    weights: list[float] | None = None
    if kind == "frozen":
        weights = frozen_weights(settings, num_layers, seed)
    elif kind == "top" or kind.startswith("layer:"):
        chosen = num_layers - 1 if kind == "top" else int(kind.removeprefix("layer:"))
        if chosen >= num_layers:
            raise ConfigError(
                f"--mix {kind}: the model has {num_layers} layers, 0 (the token encoder's) to "
                f"{num_layers - 1}"
            )
        layers = range(chosen, chosen + 1)
    mix = ScalarMix(
        len(layers),
        trainable=kind == "trainable",
        initial_weights=weights,
        layer_norm=settings.layer_norm,
        penalty=settings.penalty if kind == "trainable" else 0.0,
    )
    mix.gamma.data.fill_(settings.gamma)
    return WeightedMix(num_layers, dim, layers, mix, settings.dropout)


def frozen_weights(settings: MixSettings, num_layers: int, seed: int) -> list[float]:
    """The weights given, or a draw from the normal distribution."""
    if settings.weights is None:
        return [float(w) for w in np.random.default_rng(seed).standard_normal(num_layers)]
    if len(settings.weights) != num_layers:
        raise ConfigError(
            f"--mix-weights has {len(settings.weights)} numbers; the model has {num_layers} "
            "layers, the token encoder's included"
        )
    return list(settings.weights)


def layer_shares(mix: str | Sequence[float], num_layers: int) -> npt.NDArray[np.float32]:
    """What each output of a fixed mix takes of each layer: (outputs, layers)."""
    every: npt.NDArray[np.float32] = np.eye(num_layers, dtype=np.float32)
    if isinstance(mix, str):
        named: dict[str, npt.NDArray[np.float32]] = {
            "average": every.mean(axis=0, keepdims=True),
            "top": every[-1:],
            "all": every,
            **{f"layer:{i}": every[[i]] for i in range(num_layers)},
        }
        check_one_of("mix", mix, named)
        return named[mix]
    shares = np.asarray(mix, dtype=np.float32)
    if shares.shape != (num_layers,) or not np.isfinite(shares).all():
        raise ValueError(
            f"mix is {mix!r}; one finite share for each of the {num_layers} layers is needed"
        )
    return shares[None]


def check_one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """Raise ValueError unless `value` is one of the allowed names."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
