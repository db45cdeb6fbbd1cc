"""Optimizer updates of single rows of a table in Triton, one launch each."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels.sparse_rows import AdamStep, Moments, Rows
from bilm.kernels.triton_ops.launching import blocks, launch

COLUMNS = 512  # of a row, per program


def adagrad_rows(
    table: Tensor, sums: Tensor, rows: Rows, learning_rate: float, epsilon: float
) -> None:
    """Compute `bilm.kernels.sparse_rows.adagrad_rows`; table and sums must be contiguous."""
    dim = table.shape[1]
    launch(
        adagrad,
        (len(rows.ids), blocks(dim, COLUMNS)),
        rows.ids.contiguous(),
        rows.values.contiguous(),
        table,
        sums,
        dim,
        learning_rate,
        epsilon,
        BLOCK=COLUMNS,
    )


def adam_rows(table: Tensor, moments: Moments, rows: Rows, step: AdamStep) -> None:
    """Compute `bilm.kernels.sparse_rows.adam_rows`; table and moments must be contiguous."""
    dim = table.shape[1]
    first, second = step.betas
    launch(
        adam,
        (len(rows.ids), blocks(dim, COLUMNS)),
        rows.ids.contiguous(),
        rows.values.contiguous(),
        table,
        moments.mean,
        moments.square,
        dim,
        # The kernel computes in float32, in which 1 - 0.999 would be inexact.
        1.0 - first,
        second,
        1.0 - second,
        step.rate,
        1.0 / step.root,
        step.epsilon,
        BLOCK=COLUMNS,
    )


@triton.jit
def adagrad(ids, grad, table, sums, dim, rate, epsilon, BLOCK: tl.constexpr):
    """Update some columns of one row."""
    n = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = column < dim
    at = tl.load(ids + n) * dim + column
    g = tl.load(grad + n * dim + column, ok).to(tl.float32)
    s = tl.load(sums + at, ok) + g * g
    tl.store(sums + at, s, ok)
    tl.store(table + at, tl.load(table + at, ok) - rate * g / (tl.sqrt(s) + epsilon), ok)


@triton.jit
def adam(
    ids,
    grad,
    table,
    mean,
    square,
    dim,
    new_of_mean,
    kept_of_square,
    new_of_square,
    rate,
    scale,
    epsilon,
    BLOCK: tl.constexpr,
):
    """Update some columns of one row."""
    n = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = column < dim
    at = tl.load(ids + n) * dim + column
    g = tl.load(grad + n * dim + column, ok).to(tl.float32)
    m = tl.load(mean + at, ok)
    m += new_of_mean * (g - m)
    v = kept_of_square * tl.load(square + at, ok) + new_of_square * g * g
    tl.store(mean + at, m, ok)
    tl.store(square + at, v, ok)
    update = rate * m / (tl.sqrt(v) * scale + epsilon)
    tl.store(table + at, tl.load(table + at, ok) - update, ok)
