"""Adagrad and Adam that update a table with a sparse gradient only in the rows of that gradient.

A step's softmax touches a few thousand rows of a table of hundreds of thousands; memory and time
follow those rows. Adagrad does so exactly: a row without a gradient would not move anyway. Adam
becomes the "lazy" one: a row's two moments decay only in the steps in which it has a gradient.
Weights with dense gradients go the way of torch's own optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bilm import native


class RowAdagrad(torch.optim.Adagrad):
    """torch's Adagrad, by rows where a gradient is sparse. Its sum of squares is made at once."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        tables = _take_sparse_gradients(self)
        super().step()
        for table, grad, group in tables:
            ids, rows = _rows_of(grad)
            state = self.state[table]
            state["step"] += 1
            adagrad_rows(table.data, state["sum"], ids, rows, group["lr"], group["eps"])
            table.grad = grad


class RowAdam(torch.optim.Adam):
    """torch's Adam, lazily by rows where a gradient is sparse."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        tables = _take_sparse_gradients(self)
        super().step()
        for table, grad, group in tables:
            ids, rows = _rows_of(grad)
            state = self.state[table]
            if "exp_avg" not in state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(table)
                state["exp_avg_sq"] = torch.zeros_like(table)
            state["step"] += 1
            moments = (state["exp_avg"], state["exp_avg_sq"])
            num_steps = int(state["step"])
            adam_rows(
                table.data,
                *moments,
                ids,
                rows,
                num_steps,
                group["lr"],
                group["betas"],
                group["eps"],
            )
            table.grad = grad


def adagrad_rows(
    table: Tensor, sums: Tensor, ids: Tensor, grad: Tensor, learning_rate: float, epsilon: float
) -> None:
    """Update the rows `ids` (distinct) of `table` (words, dim) and of its sums of squares."""
    if native.is_available(table, sums, grad):
        native.call(
            "adagrad_rows",
            *(table.dtype, len(ids), table.shape[1], ids, grad, table, sums),
            *(float(learning_rate), float(epsilon)),
        )
        return
    chosen = sums[ids].addcmul_(grad, grad)
    sums[ids] = chosen
    table.index_add_(0, ids, grad / chosen.sqrt_().add_(epsilon), alpha=-learning_rate)


def adam_rows(
    table: Tensor,
    mean: Tensor,
    square: Tensor,
    ids: Tensor,
    grad: Tensor,
    num_steps: int,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Update the rows `ids` (distinct) of `table` (words, dim) and of its two moments."""
    first, second = betas
    rate = learning_rate / (1.0 - first**num_steps)
    root = math.sqrt(1.0 - second**num_steps)
    if native.is_available(table, mean, square, grad):
        native.call(
            "adam_rows",
            *(table.dtype, len(ids), table.shape[1], ids, grad, table, mean, square),
            *(float(first), float(second), float(rate), 1.0 / root, float(epsilon)),
        )
        return
    new_mean = mean[ids].lerp_(grad, 1.0 - first)
    new_square = square[ids].mul_(second).addcmul_(grad, grad, value=1.0 - second)
    mean[ids], square[ids] = new_mean, new_square
    table.index_add_(0, ids, new_mean / (new_square.sqrt() / root).add_(epsilon), alpha=-rate)


def _take_sparse_gradients(
    optimizer: torch.optim.Optimizer,
) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    """The weights with sparse gradients, these gradients, and their groups; others stay."""
    taken = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.is_sparse:
                taken.append((parameter, parameter.grad, group))
                parameter.grad = None
    return taken


def _rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct row ids, and a dense row of gradient for each."""
    grad = coalesced(grad)
    return grad.indices()[0].contiguous(), grad.values().contiguous()


def coalesced(grad: Tensor) -> Tensor:
    """A sparse gradient with each row once, without a sort where they stand so already.

    The softmax gives its rows distinct and rising, but autograd forgets that on the way.
    """
    ids = grad._indices()[0]
    if grad.sparse_dim() == 1 and bool((ids[1:] > ids[:-1]).all()):
        return grad._coalesced_(True)
    return grad.coalesce()
