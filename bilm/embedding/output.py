"""What the embedder hands out for a sentence: which layers, pooled or word by word, how precise.

Three independent choices give one array a sentence, with D = directions x dim:

    layers   pool         shape
    all      none         (layers + 1, words, D)
    all      mean, max    (layers + 1, D)
    all      mean_max     (layers + 1, 2 D): the mean, then the maximum
    mixed    ...          the same without the first axis

A mix is fixed and linear: `sum_j w_j h_j`, with the weights as given. A sentence of no words is
pooled to zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from bilm.model.scalar_mix import ScalarMix

Layers = Literal["all", "average", "top"]

Pool = Literal["none", "mean", "max", "mean_max"]

Precision = Literal["float32", "float16"]

FloatArray = npt.NDArray[Any]  # of the output's precision


@dataclass(frozen=True)
class Output:
    """The form of the embedder's arrays.

    Args:
        layers: "all" of them; their plain "average"; the "top" one; or a weight for each, the
            token encoder's first. `mix_weights` gives those of a trained `ScalarMix`.
        pool: "none" keeps a vector for each word; "mean" and "max" are over the words, and
            "mean_max" is both, side by side.
        dtype: float16 halves the bytes, and keeps about three decimal places.
    """

    layers: Layers | Sequence[float] = "all"
    pool: Pool = "none"
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.layers, str) and self.layers not in get_args(Layers):
            raise ValueError(
                f"layers is {self.layers!r}; it must be one of {get_args(Layers)}, or a weight for "
                "each layer"
            )
        if not isinstance(self.layers, str):
            weights = tuple(float(weight) for weight in self.layers)
            if not np.isfinite(weights).all():
                raise ValueError(f"layers is {weights}; weights must be finite numbers")
            object.__setattr__(self, "layers", weights)
        if self.pool not in get_args(Pool):
            raise ValueError(f"pool is {self.pool!r}; it must be one of {get_args(Pool)}")
        if self.dtype not in get_args(Precision):
            raise ValueError(f"dtype is {self.dtype!r}; it must be one of {get_args(Precision)}")

    def check(self, num_layers: int) -> None:
        """Refuse weights that do not fit a model of so many layers, the encoder's included."""
        if not isinstance(self.layers, str) and len(self.layers) != num_layers:
            raise ValueError(
                f"layers has {len(self.layers)} weights; this model has {num_layers} layers, the "
                "token encoder's included"
            )

    def shape(self, num_layers: int, num_words: int, dim: int) -> tuple[int, ...]:
        """The shape of a sentence's array, for a model whose vectors have `dim` numbers."""
        kept = (num_layers,) if self.layers == "all" else ()
        if self.pool == "none":
            return (*kept, num_words, dim)
        return (*kept, 2 * dim if self.pool == "mean_max" else dim)

    def chosen(self, layers: Sequence[Tensor]) -> Tensor:
        """What is kept of the layers (..., dim) of one direction: (1 or all layers, ..., dim)."""
        if self.layers == "all":
            return torch.stack(list(layers))
        if self.layers == "top":
            return layers[-1].unsqueeze(0)
        weights = self.layers
        if isinstance(weights, str):
            weights = [1 / len(layers)] * len(layers)
        mixed = layers[0] * weights[0]
        for layer, weight in zip(layers[1:], weights[1:], strict=True):
            mixed.add_(layer, alpha=weight)
        return mixed.unsqueeze(0)


def mix_weights(mix: ScalarMix) -> tuple[float, ...]:
    """The weights with which `Output(layers=...)` gives what a trained mix gives."""
    if mix.layer_norm:
        raise ValueError(
            "this mix has layer_norm, which depends on the batch; it has no fixed weights"
        )
    return tuple((mix.gamma * F.softmax(mix.weights, dim=0)).detach().tolist())
