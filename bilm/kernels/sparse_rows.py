"""bilm/kernels/sparse_rows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bilm.kernels import c_library as native


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


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`.

    Returns the norm before the clip. Sparse gradients are coalesced first: a row that stands
    twice counts with its sum.
    """
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = coalesced(parameter.grad)
            values.append(parameter.grad._values())
        else:
            values.append(parameter.grad)
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    if max_norm is not None:
        torch._foreach_mul_(values, (max_norm / norm).clamp(max=1.0))
    return norm
