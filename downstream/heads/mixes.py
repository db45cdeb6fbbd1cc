"""Mixes: the layers of the biLM, combined into one vector per word.

All mixes but `learned` compute `gamma * sum_j softmax(w)_j h_j` (`bilm.model.scalar_mix`): with w
and gamma trained, with both fixed at given or random values, or over a single layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.errors import ConfigError
from bilm.model.scalar_mix import ScalarMix
from downstream.features.batches import FeatureShape
from downstream.heads.layers import Dropout
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import MixSettings
from downstream.texts.estimator_inputs import check_one_of


class Mix(nn.Module):
    """A map from layers (layers, texts, words, dim) to vectors (texts, words, `out_dim`)."""

    out_dim: int

    def forward(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def regularization(self) -> Tensor:
        """Return the term that the mix adds to the loss."""
        return torch.zeros(())

    def shares(self) -> list[float]:
        """Return the share of each layer in the mix; they sum to 1."""
        raise NotImplementedError

    def scale(self) -> float:
        """Return gamma; 1 for a mix without gamma."""
        return 1.0


class WeightedMix(Mix):
    """A `ScalarMix` of some of the layers."""

    def __init__(
        self, shape: FeatureShape, layers: Sequence[int], mix: ScalarMix, dropout: float
    ) -> None:
        super().__init__()
        self.out_dim = shape.dim
        self._num_layers = shape.num_layers
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
    """A small network on the concatenated layers: one linear layer with ReLU.

    Pooled layers are standardized first, by running statistics of the training texts: the
    differences between texts are small compared with their common mean.

    The share of a layer is the part of the squared norm of the weight matrix that belongs to it. It
    measures how much the network uses the layer; it is not a weight in a sum.
    """

    def __init__(self, shape: FeatureShape, settings: MixSettings) -> None:
        super().__init__()
        self.out_dim = settings.dim or shape.dim
        self._num_layers = shape.num_layers
        # A mix of a single layer applies the normalization of `ScalarMix` to that layer.
        self._norm = ScalarMix(1, trainable=False, layer_norm=True) if settings.layer_norm else None
        width = shape.num_poolings * shape.num_layers * shape.dim
        # The attribute name is part of the saved format.
        self.standardize = nn.BatchNorm1d(width, affine=False) if shape.num_poolings else None
        self.hidden = nn.Linear(shape.num_layers * shape.dim, self.out_dim)
        self.dropout = Dropout(settings.dropout, per_text=True)

    def forward(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        parts = [layer if self._norm is None else self._norm([layer], mask) for layer in layers]
        joined = torch.cat(parts, dim=-1)  # (texts, words, layers * dim)
        if self.standardize is not None:
            joined = self.standardize(joined.flatten(1)).view_as(joined)
        hidden = F.relu(self.hidden(joined))
        if mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0.0)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def shares(self) -> list[float]:
        parts = self.hidden.weight.detach().chunk(self._num_layers, dim=1)
        norms = torch.stack([part.square().sum() for part in parts])
        return (norms / norms.sum()).tolist()


def make_mix(kind: MixKind, shape: FeatureShape, settings: MixSettings, seed: int) -> Mix:
    """Return a new mix of the given kind; the seed draws the weights of a frozen mix."""
    if kind.name == "learned":
        return LearnedMix(shape, settings)
    try:
        layers = kind.layers(shape.num_layers)
    except ValueError as e:
        raise ConfigError(f"--mix {e}") from None
    is_trainable = kind.name == "trainable"
    mix = ScalarMix(
        len(layers),
        trainable=is_trainable,
        initial_weights=(
            frozen_weights(settings, shape.num_layers, seed) if kind.name == "frozen" else None
        ),
        layer_norm=settings.layer_norm,
        penalty=settings.penalty if is_trainable else 0.0,
    )
    mix.gamma.data.fill_(settings.gamma)
    return WeightedMix(shape, layers, mix, settings.dropout)


def frozen_weights(settings: MixSettings, num_layers: int, seed: int) -> list[float]:
    """Return the given weights, or weights drawn from the standard normal distribution."""
    if settings.weights is None:
        return [float(w) for w in np.random.default_rng(seed).standard_normal(num_layers)]
    if len(settings.weights) != num_layers:
        raise ConfigError(
            f"--mix-weights has {len(settings.weights)} numbers; the model has {num_layers} "
            "layers, including the token encoder"
        )
    return list(settings.weights)


def layer_shares(mix: str | Sequence[float], num_layers: int) -> npt.NDArray[np.float32]:
    """Return the share of each layer in each output of a fixed mix: (outputs, layers).

    `mix` is "average", "top", "layer:K", "all" (every layer is an output), or the shares.
    """
    every: npt.NDArray[np.float32] = np.eye(num_layers, dtype=np.float32)
    if isinstance(mix, str):
        single_layers = [f"layer:{i}" for i in range(num_layers)]
        check_one_of("mix", mix, ["average", "top", "all", *single_layers])
        if mix == "all":
            return every
        layers = MixKind.parse(mix).layers(num_layers)
        mean: npt.NDArray[np.float32] = every[list(layers)].mean(axis=0, keepdims=True)
        return mean
    shares = np.asarray(mix, dtype=np.float32)
    if shares.shape != (num_layers,) or not np.isfinite(shares).all():
        raise ValueError(
            f"mix is {mix!r}; it must contain one finite share for each of the {num_layers} layers"
        )
    return shares[None]
