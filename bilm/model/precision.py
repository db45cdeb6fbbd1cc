"""The precision of matrix products, and the context in which a model computes them.

Weights, states, losses and sums are float32 in any precision.
- `float32`: the full precision; on CUDA devices TF32 is off, also for convolutions and LSTMs.
- `tf32`: CUDA devices compute products of float32 tensors on TF32 units. Other devices have none
  and compute in float32.
- `bfloat16`: autocast computes products in bfloat16.

This module imports PyTorch only when it is needed, so that configurations can use the type.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "tf32", "bfloat16"]
PRECISION_HELP = "precision of matrix products; tf32 is for CUDA devices (default: float32)"

_tf32_lock = threading.RLock()  # PyTorch's TF32 settings are those of the whole process


def check_precision(precision: str) -> None:
    """Reject an unknown precision."""
    if precision not in get_args(Precision):
        names = ", ".join(get_args(Precision))
        raise ValueError(f"precision is {precision!r}; it must be one of: {names}")


@contextmanager
def precision_context(device: torch.device, precision: Precision) -> Iterator[None]:
    """Compute matrix products on `device` in this precision within the context.

    Enter it inside of the code that DeepSpeed calls, since DeepSpeed disables an outer autocast.
    The backward pass needs the context only for TF32: its products have the dtypes of the forward
    pass. Threads that use CUDA devices in this context wait for each other.
    """
    import torch

    check_precision(precision)
    if device.type == "cuda":
        with _tf32_lock, _tf32_set(precision == "tf32"):
            if precision != "bfloat16":
                yield
            else:
                with torch.autocast(device.type, torch.bfloat16):
                    yield
    elif precision == "bfloat16":
        with torch.autocast(device.type, torch.bfloat16):
            yield
    else:
        yield


@contextmanager
def _tf32_set(is_enabled: bool) -> Iterator[None]:
    """Switch TF32 on or off for products, convolutions and LSTMs."""
    import torch

    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    value: bool | str = is_enabled
    name, owners = "allow_tf32", [matmul, cudnn]
    if hasattr(cudnn, "conv"):  # PyTorch 2.9 and later, where the older names emit a warning
        value = "tf32" if is_enabled else "ieee"
        name, owners = "fp32_precision", [matmul, cudnn.conv, cudnn.rnn]
    before = [getattr(owner, name) for owner in owners]
    try:
        for owner in owners:
            setattr(owner, name, value)
        yield
    finally:
        for owner, old in zip(owners, before, strict=True):
            setattr(owner, name, old)
