"""The character CNN in Triton, by table look-up; see `bilm.kernels.char_cnn`.

Forward, one program computes some filters of one word in one pass over its characters: one launch
per filter width, with bias and activation. Backward is deterministic and uses no atomic additions:
a program owns some characters and filters of the gradient's table and compares them with the
winning windows of all words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels.autograd import apply, without_second_derivative
from bilm.kernels.triton_ops.activations import tanh
from bilm.kernels.triton_ops.launching import blocks, launch
from bilm.text.characters import PADDING

Activation = Literal["none", "relu", "tanh"]
FILTERS = 128  # per program, forward
TILE = 32  # characters, and filters, per program, backward


def filter_maxima(
    char_ids: Tensor,
    embedding: Tensor,
    filters: Sequence[Tensor],
    bias: Tensor | None = None,
    activation: Activation = "none",
) -> Tensor:
    """Compute `bilm.kernels.char_cnn.filter_maxima`, and optionally add a bias and activate it.

    `bias` is (sum of counts,). The tables are float64, as in C: it costs little and ranks nearly
    equal windows correctly.
    """
    characters = embedding.double()
    # one table per filter: (width, ids, count)
    tables = [characters @ weight.double().permute(2, 1, 0) for weight in filters]
    if bias is None:
        bias = embedding.new_zeros(sum(weight.shape[0] for weight in filters))
    bias = bias.to(torch.float32)
    return apply(_LookupMaxima, char_ids.contiguous(), embedding.dtype, activation, bias, *tables)


@triton.jit
def _window(word, table, start, num_ids, count, column, ok, WIDTH: tl.constexpr):
    """Return the sum of the table rows of the window at `start`."""
    total = tl.load(table + tl.load(word + start).to(tl.int32) * count + column, ok)
    for k in tl.static_range(1, WIDTH):
        row = k * num_ids + tl.load(word + start + k).to(tl.int32)
        total += tl.load(table + row * count + column, ok)
    return total


@triton.jit
def lookup_forward(
    ids,
    table,
    bias,
    best,
    winner,
    max_characters,
    num_ids,
    count,
    stride,
    ACTIVATION: tl.constexpr,
    PADDING: tl.constexpr,
    WIDTH: tl.constexpr,
    POSITIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the activated maxima of one word, and the start of each winning window.

    All windows that start after the last character of a word are equal, so only the first of them
    is read. The first window wins a tie. `stride` is the distance between two words of the results.
    """
    number = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = column < count
    word = ids + number * max_characters
    position = tl.arange(0, POSITIONS)
    characters = tl.load(word + position, position < max_characters, other=PADDING)
    length = tl.max(tl.where(characters != PADDING, position + 1, 0))
    last = tl.minimum(length, max_characters - WIDTH)
    value = _window(word, table, 0, num_ids, count, column, ok, WIDTH)
    at = tl.zeros([BLOCK], tl.int32)
    for start in range(1, last + 1):
        total = _window(word, table, start, num_ids, count, column, ok, WIDTH)
        is_better = (total > value) | (total != total)
        value = tl.where(is_better, total, value)
        at = tl.where(is_better, start, at)
    y = value.to(tl.float32) + tl.load(bias + column, ok)
    if ACTIVATION == "relu":
        y = tl.where(y < 0, 0.0, y)
    if ACTIVATION == "tanh":
        y = tanh(y)
    tl.store(best + number * stride + column, y, ok)
    tl.store(winner + number * stride + column, at, ok)


@triton.jit
def lookup_backward(
    ids,
    grad,
    winner,
    grad_table,
    words,
    max_characters,
    num_ids,
    count,
    stride,
    TILE: tl.constexpr,
):
    """Write a tile of the gradient of one position of the window: (ids, count)."""
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    character = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.program_id(2)
    ok = column < count
    total = tl.zeros([TILE, TILE], grad_table.dtype.element_ty)
    grads, winners, word = grad + column, winner + column, ids + k
    for _ in range(words):
        g = tl.load(grads, ok, other=0.0).to(grad_table.dtype.element_ty)
        start = tl.load(winners, ok, other=0).to(tl.int32)
        own = tl.load(word + start, ok, other=0).to(tl.int32)
        total += tl.where(own[None, :] == character[:, None], g[None, :], 0.0)
        grads += stride
        winners += stride
        word += max_characters
    row = k * num_ids + character[:, None]
    is_inside = (character[:, None] < num_ids) & ok[None, :]
    tl.store(grad_table + row * count + column[None, :], total, is_inside)


class _LookupMaxima(torch.autograd.Function):
    """The activated maxima from character ids (words, characters) and one table per width."""

    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        dtype: torch.dtype,
        activation: Activation,
        bias: Tensor,
        *tables: Tensor,
    ) -> Tensor:
        words, max_characters = ids.shape
        best = bias.new_empty(words, len(bias), dtype=dtype)
        winners = torch.empty(best.shape, dtype=torch.int16, device=ids.device)
        counts = [table.shape[2] for table in tables]
        columns = zip(
            tables, bias.split(counts), best.split(counts, 1), winners.split(counts, 1), strict=True
        )
        for table, own_bias, own_best, own_winners in columns:
            width, num_ids, count = table.shape
            launch(
                lookup_forward,
                (words, blocks(count, FILTERS)),
                ids,
                table.contiguous(),
                own_bias,
                own_best,
                own_winners,
                max_characters,
                num_ids,
                count,
                best.shape[1],
                ACTIVATION=activation,
                PADDING=PADDING,
                WIDTH=width,
                POSITIONS=triton.next_power_of_2(max_characters),
                BLOCK=FILTERS,
            )
        ctx.save_for_backward(ids, winners, best if activation != "none" else None)
        ctx.activation, ctx.shapes, ctx.dtype = (
            activation,
            [t.shape for t in tables],
            tables[0].dtype,
        )
        return best

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, winners, best = ctx.saved_tensors
        grad = grads[0].float().contiguous()
        if ctx.activation == "relu":
            grad = torch.where(best > 0, grad, 0.0)
        elif ctx.activation == "tanh":
            grad = grad * (1.0 - best.float().square())
        counts = [shape[2] for shape in ctx.shapes]
        columns = zip(ctx.shapes, grad.split(counts, 1), winners.split(counts, 1), strict=True)
        grad_tables = []
        for shape, own_grad, own_winners in columns:
            width, num_ids, count = shape
            grad_table = torch.empty(shape, dtype=torch.float32, device=grad.device)
            launch(
                lookup_backward,
                (blocks(count, TILE), blocks(num_ids, TILE), width),
                ids,
                own_grad,
                own_winners,
                grad_table,
                len(ids),
                ids.shape[1],
                num_ids,
                count,
                grad.shape[1],
                TILE=TILE,
            )
            grad_tables.append(grad_table.to(ctx.dtype))
        return None, None, None, grad.sum(dim=0), *grad_tables
