"""The launch of a Triton kernel over a grid."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton

BLOCK = 1024  # elements per program of a pointwise kernel: 8 for each of 128 threads


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run one program of `kernel` for each place of `grid`; an empty grid is not launched.

    The first argument is a tensor, on whose device the kernel runs: Triton itself would launch on
    the current device. Products and sums are fused explicitly, because the default depends on the
    version of Triton.
    """
    if all(grid):
        tensor: torch.Tensor = arguments[0]
        with torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext():
            kernel[grid](*arguments, enable_fp_fusion=True, **constants)


def blocks(size: int, block: int = BLOCK) -> int:
    """Return the number of blocks that cover `size` elements."""
    count: int = triton.cdiv(size, block)
    return count
