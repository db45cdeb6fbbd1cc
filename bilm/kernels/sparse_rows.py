"""Operations on sparse gradients: optimizer updates of single rows of a table, and clipping.

The time of an update is proportional to the rows of the gradient, not to the rows of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bilm.kernels import backends
from bilm.kernels.c_library import Floats, Int64s, Kernel, Real, Size
from bilm.kernels.checks import (
    check_dims,
    check_floats,
    check_ids,
    check_integers,
    check_numbers,
    check_shape,
)

_adagrad_rows = Kernel(
    "adagrad_rows",
    count=Size,
    dim=Size,
    ids=Int64s,
    grad=Floats,
    table=Floats,
    sums=Floats,
    rate=Real,
    epsilon=Real,
)
_adam_rows = Kernel(
    "adam_rows",
    count=Size,
    dim=Size,
    ids=Int64s,
    grad=Floats,
    table=Floats,
    mean=Floats,
    square=Floats,
    first=Real,
    second=Real,
    rate=Real,
    scale=Real,
    epsilon=Real,
)


class Rows(NamedTuple):
    """A gradient of some rows of a table."""

    ids: Tensor  # (rows,), distinct
    values: Tensor  # (rows, dim)


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square, each of the table's shape."""

    mean: Tensor
    square: Tensor


@dataclass(frozen=True)
class AdamStep:
    """The settings of one step of Adam; `num_steps` counts this step too."""

    num_steps: int
    learning_rate: float
    betas: tuple[float, float]
    epsilon: float

    @property
    def rate(self) -> float:
        """The learning rate, corrected for the bias of the mean."""
        return self.learning_rate / (1.0 - self.betas[0] ** self.num_steps)

    @property
    def root(self) -> float:
        """The divisor that corrects the root of the mean square for its bias."""
        return math.sqrt(1.0 - self.betas[1] ** self.num_steps)


def _check_rows(table: Tensor, rows: Rows, **others: Tensor) -> None:
    """Check a table (words, dim), other tensors of its shape, and the gradient of some rows."""
    ids, values = rows
    check_floats(table=table, values=values, **others)
    check_dims("table", table, "words", "dim")
    for name, tensor in others.items():
        check_shape(name, tensor, *table.shape)
    check_integers("ids", ids, table.device)
    check_dims("ids", ids, "rows")
    check_shape("values", values, len(ids), table.shape[1])
    check_ids("ids", ids, len(table))
    if ids.is_cpu and not _are_ascending(ids) and len(torch.unique(ids)) < len(ids):
        raise ValueError("ids contains a row twice; pass each row once, with its summed gradient")


def _are_ascending(ids: Tensor) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def adagrad_rows(
    table: Tensor, sums: Tensor, rows: Rows, learning_rate: float, epsilon: float
) -> None:
    """Update some rows of `table` (words, dim) and of its sums of squares in place."""
    _check_rows(table, rows, sums=sums)
    check_numbers(learning_rate=learning_rate, epsilon=epsilon)
    backend = backends.choose_in_place(table, sums, rows.values)
    if backend == "torch":
        plain_adagrad_rows(table, sums, rows, learning_rate, epsilon)
        return
    if backend == "triton":
        _in_triton().adagrad_rows(table, sums, rows, learning_rate, epsilon)
        return
    _adagrad_rows(
        count=len(rows.ids),
        dim=table.shape[1],
        ids=rows.ids.contiguous(),
        grad=rows.values,
        table=table,
        sums=sums,
        rate=learning_rate,
        epsilon=epsilon,
    )


def plain_adagrad_rows(
    table: Tensor, sums: Tensor, rows: Rows, learning_rate: float, epsilon: float
) -> None:
    """Compute `adagrad_rows` in plain PyTorch: the reference."""
    ids, grad = rows
    new_sums = sums[ids].addcmul_(grad, grad)
    sums[ids] = new_sums
    table.index_add_(0, ids, grad / new_sums.sqrt_().add_(epsilon), alpha=-learning_rate)


def adam_rows(table: Tensor, moments: Moments, rows: Rows, step: AdamStep) -> None:
    """Update some rows of `table` (words, dim) and of its moments in place."""
    _check_rows(table, rows, **moments._asdict())
    check_numbers(rate=step.rate, epsilon=step.epsilon)
    backend = backends.choose_in_place(table, *moments, rows.values)
    if backend == "torch":
        plain_adam_rows(table, moments, rows, step)
        return
    if backend == "triton":
        _in_triton().adam_rows(table, moments, rows, step)
        return
    first, second = step.betas
    _adam_rows(
        count=len(rows.ids),
        dim=table.shape[1],
        ids=rows.ids.contiguous(),
        grad=rows.values,
        table=table,
        mean=moments.mean,
        square=moments.square,
        first=first,
        second=second,
        rate=step.rate,
        scale=1.0 / step.root,
        epsilon=step.epsilon,
    )


def plain_adam_rows(table: Tensor, moments: Moments, rows: Rows, step: AdamStep) -> None:
    """Compute `adam_rows` in plain PyTorch: the reference."""
    (mean, square), (ids, grad), (first, second) = moments, rows, step.betas
    new_mean = mean[ids].lerp_(grad, 1.0 - first)
    new_square = square[ids].mul_(second).addcmul_(grad, grad, value=1.0 - second)
    mean[ids], square[ids] = new_mean, new_square
    divisor = (new_square.sqrt() / step.root).add_(step.epsilon)
    table.index_add_(0, ids, new_mean / divisor, alpha=-step.rate)


def _in_triton() -> ModuleType:
    from bilm.kernels.triton_ops import sparse_rows

    return sparse_rows


def distinct_rows(grad: Tensor) -> Rows:
    """Return the rows of a sparse gradient, each once."""
    grad = coalesced(grad)
    return Rows(grad.indices()[0].contiguous(), grad.values().contiguous())


def coalesced(grad: Tensor) -> Tensor:
    """Return a sparse gradient with each row once; sort it only if necessary.

    The softmax returns distinct, sorted rows, but autograd drops the flag that marks them as
    coalesced. On an accelerator only the flag counts, because reading the ids would wait.
    """
    if grad.is_coalesced():
        return grad
    ids = grad._indices()[0]
    if ids.is_cpu and grad.sparse_dim() == 1 and _are_ascending(ids):
        return grad._coalesced_(True)
    return grad.coalesce()


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale all gradients in place so that their total norm is at most `max_norm`.

    Returns the norm before clipping. Sparse gradients are coalesced first: a row that occurs twice
    counts as its sum.
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
