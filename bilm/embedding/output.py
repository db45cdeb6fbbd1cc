"""The form of the embedder's results: layers, pooling and dtype.

These three choices are independent. Each sentence has one array, with D = directions x dim:

    layers   pool         shape
    all      none         (layers + 1, words, D)
    all      mean, max    (layers + 1, D)
    all      mean_max     (layers + 1, 2 D): the mean, then the maximum
    mixed    ...          the same without the first axis

A mix is fixed and linear: `sum_j w_j h_j`, with the weights as given. The pooled vector of a
sentence without words is zero.
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

OutputDtype = Literal["float32", "float16"]

FloatArray = npt.NDArray[Any]  # float32 or float16, as `Output.dtype` states


@dataclass(frozen=True)
class Output:
    """The form of the embedder's arrays.

    Args:
        layers: "all" layers, their "average", the "top" layer, or one weight per layer, the token
            encoder's first. `mix_weights` returns the weights of a trained `ScalarMix`.
        pool: "none" returns one vector per word. "mean" and "max" pool over the words, and
            "mean_max" returns both, the mean first.
        dtype: "float16" halves the size and keeps about three decimal places.
    """

    layers: Layers | Sequence[float] = "all"
    pool: Pool = "none"
    dtype: OutputDtype = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.layers, str) and self.layers not in get_args(Layers):
            raise ValueError(
                f"layers is {self.layers!r}; it must be one of {get_args(Layers)}, or one weight "
                "per layer"
            )
        if not isinstance(self.layers, str):
            weights = tuple(float(weight) for weight in self.layers)
            if not np.isfinite(weights).all():
                raise ValueError(f"layers is {weights}; weights must be finite numbers")
            object.__setattr__(self, "layers", weights)
        if self.pool not in get_args(Pool):
            raise ValueError(f"pool is {self.pool!r}; it must be one of {get_args(Pool)}")
        if self.dtype not in get_args(OutputDtype):
            raise ValueError(f"dtype is {self.dtype!r}; it must be one of {get_args(OutputDtype)}")

    def check(self, num_layers: int) -> None:
        """Reject a mix whose number of weights is not `num_layers` (with the token encoder)."""
        if not isinstance(self.layers, str) and len(self.layers) != num_layers:
            raise ValueError(
                f"layers has {len(self.layers)} weights; this model has {num_layers} layers, "
                "including the token encoder"
            )

    def chosen(self, layers: Sequence[Tensor]) -> Tensor:
        """Select or mix the layers (..., dim) of one direction: (1 or all layers, ..., dim)."""
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


ALL_WORD_LAYERS = Output()  # the default: every layer of every word


def mix_weights(mix: ScalarMix) -> tuple[float, ...]:
    """Return the weights with which `Output(layers=...)` computes the same as a trained mix."""
    if mix.layer_norm:
        raise ValueError(
            "this mix uses layer_norm, which depends on the batch, so it has no fixed weights"
        )
    return tuple((mix.gamma * F.softmax(mix.weights, dim=0)).detach().tolist())
