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

_cuda_lock = threading.RLock()  # PyTorch's settings are those of the whole process


def check_precision(precision: str) -> None:
    """Reject an unknown precision."""
    if precision not in get_args(Precision):
        names = ", ".join(get_args(Precision))
        raise ValueError(f"precision is {precision!r}; it must be one of: {names}")


@contextmanager
def precision_context(device: torch.device, precision: Precision) -> Iterator[None]:
    """Compute matrix products on `device` in this precision within the context.

    Enter it inside of the code that DeepSpeed calls, since DeepSpeed disables an outer autocast.
    An autocast outside of it has no effect. The backward pass needs the context only for TF32: its
    products have the dtypes of the forward pass. Do not read PyTorch's older TF32 settings, such as
    `allow_tf32`, within the context. Threads that use CUDA devices in it wait for each other.
    """
    import torch

    check_precision(precision)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
    if device.type != "cuda":
        with autocast:
            yield
        return
    with _cuda_lock, _cuda_settings(is_tf32=precision == "tf32"), autocast:
        yield


@contextmanager
def _cuda_settings(is_tf32: bool) -> Iterator[None]:
    """Switch TF32 on or off for products, convolutions and LSTMs; sum bfloat16 in float32."""
    import torch

    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    settings: list[tuple[Any, str, object]] = [
        (matmul, "allow_bf16_reduced_precision_reduction", False)
    ]
    if hasattr(cudnn, "conv"):  # PyTorch 2.9 and later, where the older names emit a warning
        mode = "tf32" if is_tf32 else "ieee"
        settings += [(owner, "fp32_precision", mode) for owner in (matmul, cudnn.conv, cudnn.rnn)]
    else:
        settings += [(owner, "allow_tf32", is_tf32) for owner in (matmul, cudnn)]
    before = [getattr(owner, name) for owner, name, _ in settings]
    try:
        for owner, name, value in settings:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), old in zip(settings, before, strict=True):
            setattr(owner, name, old)
