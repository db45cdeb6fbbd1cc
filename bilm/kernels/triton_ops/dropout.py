"""Counter-based dropout in Triton: the same bits as every other implementation, in one launch.

See `bilm.kernels.dropout`. One call of the generator computes the words of four adjacent units.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels.autograd import apply
from bilm.kernels.dropout import Mask
from bilm.kernels.triton_ops.launching import blocks, launch

QUADS = 256  # groups of four units per program


def apply_mask(x: Tensor, mask: Mask) -> Tensor:
    """Set the dropped elements of `x` (time, rows, dim) to zero, and scale the rest."""
    return apply(_Dropout, x, mask)


class _Dropout(torch.autograd.Function):
    """It is linear in x, so backward applies the same mask to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        x = x.contiguous()
        y = torch.empty_like(x)
        time, rows, dim = x.shape
        count = time * rows * ((dim + 3) // 4)
        launch(
            dropout,
            (blocks(count, QUADS),),
            x,
            y,
            count,
            rows,
            dim,
            mask.seed,
            mask.step,
            mask.first_row,
            mask.site,
            mask.threshold,
            mask.scale,
            IS_FULL=dim % 4 == 0,
            QUADS=QUADS,
        )
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return apply(_Dropout, grads[0], ctx.mask), None


@triton.jit(do_not_specialize=["seed", "step", "first_row", "site", "threshold"])
def dropout(
    x,
    y,
    count,
    rows,
    dim,
    seed,
    step,
    first_row,
    site,
    threshold,
    scale,
    IS_FULL: tl.constexpr,
    QUADS: tl.constexpr,
):
    """Drop elements of QUADS groups of four units; `count` is the number of all groups.

    With IS_FULL, `dim` is a multiple of 4.
    """
    start = tl.program_id(0).to(tl.int64) * QUADS
    per_row = (dim + 3) // 4
    number = start + tl.arange(0, QUADS)
    line = number // per_row  # time * rows + row
    a, b, c, d = tl.philox(
        (step.to(tl.uint64) << 32) | seed.to(tl.uint64),  # the key
        (number % per_row).to(tl.uint32),
        (line // rows).to(tl.uint32),
        (line % rows + first_row).to(tl.uint32),
        tl.zeros([QUADS], tl.uint32) + site.to(tl.uint32),
        n_rounds=10,
    )
    words = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    element = tl.arange(0, 4 * QUADS)
    if IS_FULL:
        at = start * 4 + element
        ok = at < count * 4
    else:
        group = start + element // 4
        unit = (group % per_row) * 4 + element % 4
        at = (group // per_row) * dim + unit
        ok = (group < count) & (unit < dim)
    kept = tl.load(x + at, ok).to(tl.float32) * scale
    tl.store(y + at, tl.where(words >= threshold.to(tl.uint32), kept, 0.0), ok)
