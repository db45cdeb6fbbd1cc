"""Updates of the tables of a sampled softmax at ZeRO stages 1 and 2.

DeepSpeed partitions the optimizer state of all other weights. The tables, whose gradients are
sparse, have an optimizer of their own on every rank; gradients are clipped by the norm of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bilm.kernels.sparse_rows import coalesced
from bilm.model.language_model import BiLm


def sparse_tables(model: BiLm) -> list[nn.Parameter]:
    """Return the tables of a sampled softmax, whose gradients are sparse."""
    softmax = model.softmax
    if softmax is None or model.config.softmax.kind != "sampled":
        return []
    return [softmax.bias] if softmax.is_tied else [softmax.weight, softmax.bias]


def dense_weights(model: BiLm) -> list[nn.Parameter]:
    """Return all weights but those of `sparse_tables`, in the order of the forward pass.

    It runs the directions of a layer before those of the next layer.
    """
    bilstm, tables = model.bilstm, sparse_tables(model)
    lstms = [
        bilstm.lstm(direction, layer)
        for layer in range(bilstm.config.num_layers)
        for direction in range(len(bilstm.stacks))
    ]
    modules = [model.encoder, *lstms, *([] if model.softmax is None else [model.softmax])]
    # Weights that the encoder and the softmax share are listed once.
    weights = dict.fromkeys(weight for module in modules for weight in module.parameters())
    return [weight for weight in weights if not any(weight is table for table in tables)]


class TableUpdates:
    """An optimizer of tables with sparse gradients that takes part in DeepSpeed's clipping."""

    def __init__(
        self,
        tables: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        max_norm: float | None,
    ) -> None:
        self._tables, self.optimizer, self._max_norm = tables, optimizer, max_norm

    def join(self, partitioned_optimizer: Any) -> None:
        """Let DeepSpeed's optimizer clip by the norm of its own gradients and of the tables."""
        norm_of_others = partitioned_optimizer.scaled_global_norm
        partitioned_optimizer.scaled_global_norm = lambda *args, **kwargs: self._norm_of_all(
            norm_of_others(*args, **kwargs)
        )

    def _norm_of_all(self, others: Tensor) -> Tensor:
        for table in self._tables:
            if table.grad is not None:
                table.grad = coalesced(table.grad)
        norms = [table.grad._values().norm() for table in self._tables if table.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([others, *norms]))
        return torch.where(others < 0, others, norm)  # DeepSpeed marks an invalid norm by -1

    def step(self, norm: float) -> None:
        """Clip and update after DeepSpeed's step, unless `norm`, that of all, is not finite."""
        if math.isfinite(norm) and norm >= 0:
            scale = 1.0 if self._max_norm is None else min(1.0, self._max_norm / norm)
            for table in self._tables:
                if table.grad is not None:
                    table.grad._values().mul_(scale)
            self.optimizer.step()
        for table in self._tables:
            table.grad = None
