"""Find out whether the Triton kernels can be used, without importing Triton otherwise."""

from __future__ import annotations

import functools
import logging
import math
import os

import torch

logger = logging.getLogger(__name__)


def is_interpreted() -> bool:
    """Return whether Triton's interpreter, which supports tensors on any device, is selected."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def available() -> bool:
    """Return whether the kernels run on this machine: on its GPU, or in Triton's interpreter.

    The first call compiles and runs one small kernel. If that fails, one warning is logged: Triton
    may be missing, may not support the GPU, or may find no C compiler, which it needs for launches.
    """
    if not is_interpreted() and not torch.cuda.is_available():
        return False
    try:
        _run_small_kernel("cpu" if is_interpreted() else "cuda")
    except Exception as error:  # Triton raises errors of many types
        logger.warning(
            "Triton cannot be used; using the slower PyTorch code: %s: %s",
            type(error).__name__,
            error,
        )
        return False
    return True


def _run_small_kernel(device: str) -> None:
    from bilm.kernels.sparse_rows import Rows
    from bilm.kernels.triton_ops.sparse_rows import adagrad_rows

    table, sums = torch.tensor([[1.0]], device=device), torch.zeros(1, 1, device=device)
    rows = Rows(torch.zeros(1, dtype=torch.int64, device=device), torch.full_like(table, 2.0))
    adagrad_rows(table, sums, rows, learning_rate=0.5, epsilon=0.0)
    if not math.isclose(table.item(), 0.5, rel_tol=1e-6) or sums.item() != 4.0:
        raise RuntimeError(f"a kernel returned {table.item()} and {sums.item()}, not 0.5 and 4.0")
