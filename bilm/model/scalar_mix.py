"""The task's own mix of the biLM's layers: `gamma * sum_j softmax(w)_j h_j`.

Cost: one multiply-add per element and layer; w and gamma are the only weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ScalarMix(nn.Module):
    """Layers (layers, ..., words, dim) to one vector per word (..., words, dim).

    Args:
        num_layers: how many layers come in, the token encoder's included.
        trainable: learn the weights and gamma; otherwise both stay as given.
        initial_weights: one number per layer, before the softmax; zeros (the plain average) if
            left out.
        initial_gamma: the scale of the mix.
        layer_norm: bring each layer to mean 0 and variance 1 first. As in the original this is one
            mean and one variance over all unmasked elements of the batch, with no learned part.
        dropout: share of the mixed vector set to zero in training.
        penalty: the lambda of `regularization()`.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        trainable: bool = True,
        initial_weights: Sequence[float] | None = None,
        initial_gamma: float = 1.0,
        layer_norm: bool = False,
        dropout: float = 0.0,
        penalty: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers is {num_layers}; at least one layer is needed")
        weights = [0.0] * num_layers
        if initial_weights is not None:
            weights = [float(weight) for weight in initial_weights]
        if len(weights) != num_layers:
            raise ValueError(f"initial_weights has {len(weights)} numbers for {num_layers} layers")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")
        if not penalty >= 0:
            raise ValueError(f"penalty is {penalty}; it must not be negative")
        self.weights = nn.Parameter(torch.tensor(weights), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(float(initial_gamma)), requires_grad=trainable)
        self.layer_norm = layer_norm
        self.dropout = dropout
        self.penalty = penalty

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix `layers`; `mask` (..., words) is true at words, false at padding.

        Padding comes out as zeros. Boundary tokens must be gone already.
        """
        if len(layers) != len(self.weights):
            raise ValueError(f"{len(layers)} layers came in; the mix has {len(self.weights)}")
        shares = F.softmax(self.weights, dim=0)
        mixed: Tensor | float = 0.0
        for share, layer in zip(shares, layers, strict=True):
            mixed = mixed + share * (_batch_norm(layer, mask) if self.layer_norm else layer)
        assert isinstance(mixed, Tensor)
        if mask is not None:
            mixed = mixed.masked_fill(~mask.unsqueeze(-1), 0.0)
        return F.dropout(self.gamma * mixed, self.dropout, self.training)

    def regularization(self) -> Tensor:
        """`lambda * ||w||^2`, to be added to the loss. It acts on the weights, never on gamma,
        and pulls towards the plain average.
        """
        return self.penalty * self.weights.square().sum()


def _batch_norm(layer: Tensor, mask: Tensor | None) -> Tensor:
    """One mean and one biased variance over all unmasked elements."""
    elements = layer if mask is None else layer[mask]
    variance, mean = torch.var_mean(elements, correction=0)
    return (layer - mean) * torch.rsqrt(variance + 1e-12)
