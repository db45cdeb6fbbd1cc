"""The sampled softmax in Triton: the pass over the logits, and the sums of gradient rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels.triton_ops.launching import blocks, launch

NEGATIVES = 2048  # logits per pass of a program
COLUMNS = 512  # of a row, per program of `add_rows`


def to_probabilities(
    logits: Tensor, bias: Tensor, true_logit: Tensor, hits: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `bilm.kernels.sampled_softmax.to_probabilities` in one launch.

    `logits` must be contiguous. Losses and shares have the dtype of `true_logit`.
    """
    losses, true_share = torch.empty_like(true_logit), torch.empty_like(true_logit)
    words, negatives = logits.shape
    launch(
        softmax,
        (words,),
        logits,
        bias.contiguous(),
        true_logit.contiguous(),
        hits.contiguous(),
        losses,
        true_share,
        negatives,
        BLOCK=NEGATIVES,
        num_warps=8,
    )
    return losses, true_share


@triton.jit
def _biased(row, bias, hit, column, count):
    """Return the logits of some columns with their bias, or minus infinity outside the row."""
    ok = column < count
    value = tl.load(row + column, ok, other=0.0).to(tl.float32)
    value += tl.load(bias + column, ok, other=0.0).to(tl.float32)
    return tl.where(ok & (column != hit), value, float("-inf"))


@triton.jit
def softmax(logits, bias, true_logit, hits, losses, true_share, count, BLOCK: tl.constexpr):
    """Turn the logits of one word into probabilities, in three passes over them."""
    word = tl.program_id(0).to(tl.int64)
    row = logits + word * count
    true = tl.load(true_logit + word).to(tl.float32)
    hit = tl.load(hits + word)
    lanes = tl.arange(0, BLOCK)
    maxima = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, count, BLOCK):
        maxima = tl.maximum(maxima, _biased(row, bias, hit, start + lanes, count))
    greatest = tl.maximum(tl.max(maxima), true)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        sums += tl.exp(_biased(row, bias, hit, start + lanes, count) - greatest)
    own = tl.exp(true - greatest)
    total = tl.sum(sums) + own
    for start in range(0, count, BLOCK):
        column = start + lanes
        share = tl.exp(_biased(row, bias, hit, column, count) - greatest) / total
        tl.store(row + column, share, column < count)
    tl.store(true_share + word, own / total)
    tl.store(losses + word, tl.log(total) + greatest - true)


def add_rows(sums: Tensor, places: Tensor, rows: Tensor, scale: Tensor) -> None:
    """Compute `bilm.kernels.sampled_softmax.add_rows`, always in the same order of additions.

    The places are sorted first, so that one program adds all rows of a place. `sums` must be
    contiguous.
    """
    ordered, order = torch.sort(places, stable=True)
    launch(
        add_sorted_rows,
        (len(places), blocks(sums.shape[1], COLUMNS)),
        ordered,
        order,
        scale.contiguous(),
        rows.contiguous(),
        sums,
        len(places),
        sums.shape[1],
        BLOCK=COLUMNS,
    )


@triton.jit
def add_sorted_rows(places, order, scale, rows, sums, count, dim, BLOCK: tl.constexpr):
    """Add all rows of one place; only the program of its first row has work to do."""
    n = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = column < dim
    place = tl.load(places + n)
    before = tl.load(places + n - 1, n > 0, other=-1)
    if place != before:
        target = sums + place * dim + column
        total = tl.load(target, ok)
        current = place
        while current == place:
            source = tl.load(order + n)
            row = tl.load(rows + source * dim + column, ok).to(tl.float32)
            total += tl.load(scale + source) * row
            n += 1
            current = tl.load(places + n, n < count, other=-1)
        tl.store(target, total, ok)
