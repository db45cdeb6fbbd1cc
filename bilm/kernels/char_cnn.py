"""Convolution and maximum over a word's characters, by table look-up.

A convolution over characters is a sum of table rows, one per position of the window: with
`T[k] = E W[:, :, k]^T` (characters, count), a window's value is `sum_k T[k][char_k]`. The tables
are small products (rebuilt at every step, so that autograd carries gradients on to E and W); what
is left per word and window is `width` additions of rows, not `width * char_dim` multiply-adds.
Each word is looked at up to its own length, which is exact: padding characters take part, but all
windows that start after the word are the same window. Backward touches the winning window alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bilm.kernels import c_library as native
from bilm.text.characters import PADDING


class LookupFilters(torch.autograd.Function):
    """The maximum of every filter over all windows: (words, sum of counts).

    Takes character ids (words, characters) and one table per filter width, (width, ids, count).
    """

    @staticmethod
    def forward(ctx: Any, char_ids: Tensor, *tables: Tensor) -> Tensor:
        ids = char_ids.to(torch.int16).contiguous()
        lengths = (ids != PADDING).sum(dim=1, dtype=torch.int32)
        tables = tuple(table.contiguous() for table in tables)
        num_words, max_characters = ids.shape
        stride = sum(table.shape[2] for table in tables)
        best = tables[0].new_empty(num_words, stride)
        winners = torch.empty(num_words, stride, dtype=torch.int16)
        start = 0
        for table in tables:
            width, num_ids, count = table.shape
            native.call(
                "lookup_forward",
                *(table.dtype, num_words, max_characters, ids, lengths, width, num_ids, count),
                *(table, stride, _from_column(best, start), _from_column(winners, start)),
            )
            start += count
        ctx.save_for_backward(ids, winners)
        ctx.shapes = [table.shape for table in tables]
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ids, winners = ctx.saved_tensors
        grad = grads[0].contiguous()
        num_words, max_characters = ids.shape
        grad_tables, start = [], 0
        for shape in ctx.shapes:
            width, num_ids, count = shape
            grad_table = grad.new_zeros(shape)
            native.call(
                "lookup_backward",
                *(grad.dtype, num_words, max_characters, ids, width, num_ids, count),
                *(
                    _from_column(grad, start),
                    _from_column(winners, start),
                    grad.shape[1],
                    grad_table,
                ),
            )
            grad_tables.append(grad_table)
            start += count
        return None, *grad_tables


def _from_column(tensor: Tensor, columns: int) -> native.Address:
    """Where the columns from `columns` on begin; rows keep the tensor's own stride."""
    return native.Address(tensor.data_ptr() + columns * tensor.element_size())
