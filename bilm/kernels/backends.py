"""Choose the implementation of an operation: plain PyTorch, the C kernels or the Triton kernels.

The environment variable `BILM_KERNELS`, which is read once, selects the backend:
- `auto` (the default): `c` for tensors on the CPU, `triton` for tensors on a GPU, else `torch`. One
  warning is logged if the C kernels cannot be built or Triton cannot be used.
- `torch`: plain PyTorch, the reference. `BILM_NATIVE=0` means the same.
- `c`: like `auto`, but it is an error if the C kernels cannot be built.
- `triton`: like `auto`, but it is an error if Triton cannot be used. In Triton's interpreter
  (`TRITON_INTERPRET=1`), tensors on the CPU use the Triton kernels too.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from bilm.errors import ConfigError
from bilm.kernels import c_library
from bilm.kernels.triton_ops import availability

logger = logging.getLogger(__name__)

Backend = Literal["torch", "c", "triton"]
Request = Literal["auto", "torch", "c", "triton"]

TRITON_TYPES = (torch.float32, torch.bfloat16, torch.float16)  # the kernels compute in float32


def choose(*tensors: Tensor) -> Backend:
    """Return the backend for an operation on `tensors`."""
    request = requested()
    if request == "torch":
        return "torch"
    if (request == "triton" or not tensors[0].is_cpu) and _can_use_triton(request, tensors):
        return "triton"
    for tensor in tensors:
        if not tensor.is_cpu or tensor.dtype not in c_library.FLOAT_TYPES:
            return "torch"
    return "c" if _can_use_c(request == "c") else "torch"


def choose_in_place(*tensors: Tensor) -> Backend:
    """Return the backend for an operation without a backward pass that modifies its arguments.

    C and Triton code supports contiguous tensors only, and does not record gradients.
    """
    is_recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if is_recorded or not all(tensor.is_contiguous() for tensor in tensors):
        return "torch"
    return choose(*tensors)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of matrix products with `weight`: that of autocast, if it is enabled."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


@functools.cache
def requested() -> Request:
    """Return the backend that the environment selects."""
    value = os.environ.get("BILM_KERNELS")
    if not value:
        return "torch" if os.environ.get("BILM_NATIVE") == "0" else "auto"
    if value not in get_args(Request):
        values = ", ".join(get_args(Request))
        raise ConfigError(f"BILM_KERNELS is {value!r}; it must be one of: {values}")
    return cast(Request, value)


def _can_use_triton(request: Request, tensors: Sequence[Tensor]) -> bool:
    """Return whether the Triton kernels support these tensors, and run on this machine."""
    if request == "triton" and not availability.available():
        raise ConfigError(
            "BILM_KERNELS is triton, but Triton cannot be used on this machine. Install triton and "
            "a C compiler on a machine with a GPU, or set BILM_KERNELS to auto or torch."
        )
    device = tensors[0].device
    if device.type == "meta" or (device.type == "cpu" and not availability.is_interpreted()):
        return False
    return availability.available() and all(
        tensor.device == device and tensor.dtype in TRITON_TYPES for tensor in tensors
    )


@functools.cache
def _can_use_c(is_required: bool) -> bool:
    try:
        c_library.library()
    except (OSError, subprocess.SubprocessError) as error:
        if is_required:
            raise ConfigError(
                f"BILM_KERNELS is c, but the C kernels cannot be built: {error}. Install a C "
                "compiler with OpenMP, or set BILM_KERNELS to auto or torch."
            ) from None
        logger.warning("the C kernels cannot be built; using the slower PyTorch code: %s", error)
        return False
    return True
