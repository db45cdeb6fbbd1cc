"""A task-specific weighted sum of the biLM's layers: `gamma * sum_j softmax(w)_j h_j`.

Cost: one multiply-add per element and layer; w and gamma are the only weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ScalarMix(nn.Module):
    """Mix layers (layers, ..., words, dim) into one vector per word (..., words, dim).

    `gamma`, the scale of the mix, starts at 1.

    Args:
        num_layers: the number of layers, including the token encoder's.
        trainable: learn the weights and gamma; otherwise both are constant.
        initial_weights: one number per layer, before the softmax; by default zeros, which gives the
            plain average.
        layer_norm: first normalize each layer to mean 0 and variance 1. As in the original, this is
            one mean and one variance over all words of the batch, without learned parameters.
        dropout: the share of the mixed vector that is set to zero in training.
        penalty: the lambda of `regularization()`.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        trainable: bool = True,
        initial_weights: Sequence[float] | None = None,
        layer_norm: bool = False,
        dropout: float = 0.0,
        penalty: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers is {num_layers}; it must be at least 1")
        weights = [0.0] * num_layers
        if initial_weights is not None:
            weights = [float(weight) for weight in initial_weights]
        if len(weights) != num_layers:
            raise ValueError(
                f"initial_weights has {len(weights)} numbers; it must have {num_layers}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")
        if not penalty >= 0:
            raise ValueError(f"penalty is {penalty}; it must not be negative")
        self.weights = nn.Parameter(torch.tensor(weights), requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(1.0), requires_grad=trainable)
        self.layer_norm = layer_norm
        self.dropout = dropout
        self.penalty = penalty

    def forward(
        self,
        layers: Tensor | Sequence[Tensor],
        mask: Tensor | None = None,
        is_word: Tensor | None = None,
    ) -> Tensor:
        """Mix `layers`; `mask` (..., words) is true for words and false for padding.

        The output is zero at padding. If `layers` contain boundary tokens, `is_word` (..., words)
        is false for them and for padding; they are excluded from the statistics of `layer_norm`.
        """
        if len(layers) != len(self.weights):
            raise ValueError(f"got {len(layers)} layers; the mix has {len(self.weights)}")
        shares = F.softmax(self.weights, dim=0)
        is_word = mask if is_word is None else is_word
        mixed: Tensor | float = 0.0
        for share, layer in zip(shares, layers, strict=True):
            mixed = mixed + share * (_batch_norm(layer, is_word) if self.layer_norm else layer)
        assert isinstance(mixed, Tensor)
        if mask is not None:
            mixed = mixed.masked_fill(~mask.unsqueeze(-1), 0.0)
        return F.dropout(self.gamma * mixed, self.dropout, self.training)

    def regularization(self) -> Tensor:
        """Return `lambda * ||w||^2`, to be added to the loss; 0 if the weights are not trained.

        It applies to the weights, not to gamma, and pulls them towards the plain average.
        """
        if not self.weights.requires_grad:
            return self.weights.new_zeros(())
        return self.penalty * self.weights.square().sum()


def _batch_norm(layer: Tensor, is_word: Tensor | None) -> Tensor:
    """Normalize by one mean and one biased variance of all elements of words."""
    elements = layer if is_word is None else layer[is_word]
    if elements.numel() == 0:
        return layer
    variance, mean = torch.var_mean(elements, correction=0)
    return (layer - mean) * torch.rsqrt(variance + 1e-12)
