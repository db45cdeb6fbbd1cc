"""The character CNN: convolution over a word's characters and the maximum over positions.

In C and Triton the convolution is a table look-up. With `T[k] = E W[:, :, k]^T`, of the shape
(characters, count), the value of a window is a sum of table rows, `sum_k T[k][char_k]`. The tables
are small products, computed again at every step so that autograd propagates gradients to E and W.
Each window then costs `width` row additions instead of `width * char_dim` multiply-adds. Each word
is read only up to its own length, which is exact: padding characters take part, but all windows
that start after the word are equal. Backward touches only the winning window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bilm.kernels import backends
from bilm.kernels.autograd import apply, without_second_derivative
from bilm.kernels.c_library import FloatColumns, Floats, Int16Columns, Int16s, Int32s, Kernel, Size
from bilm.kernels.checks import (
    INTEGER_TYPES,
    check_dims,
    check_floats,
    check_ids,
    check_integers,
    check_not_empty,
    check_shape,
)
from bilm.text.characters import PADDING

MAX_INT16 = (1 << 15) - 1
_REMEDY = (
    "Use bilm.text.characters.char_ids. The ids of AllenNLP and bilm-tf are greater by 1; subtract "
    "1 from them."
)

_lookup_forward = Kernel(
    "lookup_forward",
    words=Size,
    max_characters=Size,
    ids=Int16s,
    lengths=Int32s,
    width=Size,
    characters=Size,
    count=Size,
    table=Floats,
    stride=Size,
    best=FloatColumns,
    winner=Int16Columns,
)
_lookup_backward = Kernel(
    "lookup_backward",
    words=Size,
    max_characters=Size,
    ids=Int16s,
    width=Size,
    characters=Size,
    count=Size,
    grad=FloatColumns,
    winner=Int16Columns,
    stride=Size,
    grad_table=Floats,
)


def filter_maxima(char_ids: Tensor, embedding: Tensor, filters: Sequence[Tensor]) -> Tensor:
    """Return the maximum of every filter over all positions: (words, sum of counts).

    `char_ids` is (words, characters), `embedding` (ids, char_dim), each filter (count, char_dim,
    width). Padding characters take part; bias and activation are left to the caller.
    """
    _check(char_ids, embedding, filters)
    # In C and Triton, ids and positions are of type int16.
    is_large = max(len(embedding), char_ids.shape[1]) > MAX_INT16
    backend = "torch" if is_large else backends.choose(embedding)
    if backend == "torch":
        return plain_filter_maxima(char_ids, embedding, filters)
    if backend == "triton":
        from bilm.kernels.triton_ops import char_cnn as in_triton

        return in_triton.filter_maxima(char_ids, embedding, filters)
    # float64 costs little here and ranks nearly equal windows correctly, so that the gradient
    # reaches the right one.
    characters = embedding.double()
    # one table per filter: (width, ids, count)
    tables = [characters @ weight.double().permute(2, 1, 0) for weight in filters]
    return apply(_LookupMaxima, char_ids, *tables).to(embedding.dtype)


def _check(char_ids: Tensor, embedding: Tensor, filters: Sequence[Tensor]) -> None:
    check_floats(embedding=embedding, **{f"filter {i}": weight for i, weight in enumerate(filters)})
    check_dims("embedding", embedding, "ids", "char_dim")
    check_integers("char_ids", char_ids, embedding.device, INTEGER_TYPES)
    check_dims("char_ids", char_ids, "words", "characters")
    check_not_empty("the number of filters", len(filters))
    check_not_empty("char_dim", embedding.shape[1])
    for i, weight in enumerate(filters):
        check_dims(f"filter {i}", weight, "count", "char_dim", "width")
        count, _, width = weight.shape
        check_shape(f"filter {i}", weight, count, embedding.shape[1], width)
        check_not_empty(f"the count of filter {i}", count)
        check_not_empty(f"the width of filter {i}", width)
        if width > char_ids.shape[1]:
            raise ValueError(
                f"char_ids has the shape {tuple(char_ids.shape)}; each word must have at least "
                f"{width} characters, the width of filter {i}. Pad the words."
            )
    check_ids("char_ids", char_ids, len(embedding), remedy=_REMEDY)


def plain_filter_maxima(char_ids: Tensor, embedding: Tensor, filters: Sequence[Tensor]) -> Tensor:
    """Compute `filter_maxima` in plain PyTorch, by convolutions: the reference."""
    embedded = F.embedding(char_ids.long(), embedding)  # (words, characters, char_dim)
    embedded = embedded.transpose(1, 2)  # (words, char_dim, characters)
    return torch.cat([F.conv1d(embedded, weight).amax(dim=2) for weight in filters], dim=1)


class _LookupMaxima(torch.autograd.Function):
    """The maxima from character ids (words, characters) and one table per filter width."""

    @staticmethod
    def forward(ctx: Any, char_ids: Tensor, *tables: Tensor) -> Tensor:
        ids = char_ids.to(torch.int16).contiguous()
        # up to the last character that is not padding
        ends = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32)
        lengths = ((ids != PADDING) * ends).amax(dim=1)
        counts = [table.shape[2] for table in tables]
        best = tables[0].new_empty(len(ids), sum(counts))
        winners = torch.empty(len(ids), sum(counts), dtype=torch.int16)
        columns = zip(tables, best.split(counts, 1), winners.split(counts, 1), strict=True)
        for table, own_best, own_winners in columns:
            width, num_ids, count = table.shape
            _lookup_forward(
                words=ids.shape[0],
                max_characters=ids.shape[1],
                ids=ids,
                lengths=lengths,
                width=width,
                characters=num_ids,
                count=count,
                table=table.contiguous(),
                stride=best.shape[1],
                best=own_best,
                winner=own_winners,
            )
        ctx.save_for_backward(ids, winners)
        ctx.shapes = [table.shape for table in tables]
        return best

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, winners = ctx.saved_tensors
        grad = grads[0].contiguous()
        counts = [shape[2] for shape in ctx.shapes]
        grad_tables = []
        columns = zip(ctx.shapes, grad.split(counts, 1), winners.split(counts, 1), strict=True)
        for shape, own_grad, own_winners in columns:
            width, num_ids, count = shape
            grad_table = grad.new_zeros(shape)
            _lookup_backward(
                words=ids.shape[0],
                max_characters=ids.shape[1],
                ids=ids,
                width=width,
                characters=num_ids,
                count=count,
                grad=own_grad,
                winner=own_winners,
                stride=grad.shape[1],
                grad_table=grad_table,
            )
            grad_tables.append(grad_table)
        return None, *grad_tables
