"""Checks of the arguments of an operation, in front of all of its implementations.

C code would read or write the wrong memory for a tensor of the wrong shape or an id outside its
table. Every operation therefore checks its arguments once per call, and raises the same error for
every backend: `TypeError` for a wrong type or device, `ValueError` for a wrong shape, `IndexError`
for an id outside its table. Cost: a few microseconds, and one pass over the ids.

Values on another device than the CPU are not checked, because reading them would wait for that
device. Check them on the host, before they are copied; `bilm.training.model_inputs` does so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

INTEGER_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ID_TYPES = (torch.int64,)


def check_floats(**tensors: Any) -> None:
    """Check that all arguments are dense float tensors on one device.

    All must have the type of the first, except under autocast, which converts them.
    """
    first: Tensor | None = None
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; it must be a tensor of floats")
        if not tensor.is_floating_point() or tensor.layout is not torch.strided:
            raise TypeError(f"{name} is {_kind(tensor)}; it must be a dense tensor of floats")
        if first is None:
            first = tensor
        elif tensor.dtype is not first.dtype or tensor.device != first.device:
            if tensor.device == first.device and torch.is_autocast_enabled(tensor.device.type):
                continue
            raise TypeError(
                f"{name} is {_kind(tensor)}; it must be {_kind(first)}, like {next(iter(tensors))}"
            )


def check_dims(name: str, tensor: Tensor, *dims: str) -> None:
    """Check the number of dimensions; `dims` are their names for the message."""
    if tensor.dim() != len(dims):
        raise ValueError(
            f"{name} has the shape {tuple(tensor.shape)}; it must be ({', '.join(dims)})"
        )


def check_shape(name: str, tensor: Tensor, *shape: int) -> None:
    """Check that `tensor` has the given shape."""
    if tensor.shape != shape:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; it must be {shape}")


def check_not_empty(name: str, size: int) -> None:
    """Check that there is at least one element along a dimension, called `name`."""
    if size < 1:
        raise ValueError(f"{name} is {size}; it must be at least 1")


def check_integers(
    name: str, values: Any, device: torch.device, dtypes: tuple[torch.dtype, ...] = ID_TYPES
) -> None:
    """Check that `values` is a dense tensor of one of the integer types on `device`."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} is a {type(values).__name__}; it must be a tensor of integers")
    if values.dtype not in dtypes or values.layout is not torch.strided or values.device != device:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(
            f"{name} is {_kind(values)}; it must be a dense tensor of integers ({allowed}) on "
            f"{device}"
        )


def check_ids(name: str, ids: Tensor, limit: int, minimum: int = 0, remedy: str = "") -> None:
    """Check that all `ids` are at least `minimum` and below `limit`; `remedy` ends the message.

    Only ids on the CPU are checked.
    """
    if not ids.is_cpu or not ids.numel():
        return
    lowest, highest = (int(value) for value in torch.aminmax(ids))
    if lowest < minimum or highest >= limit:
        wrong = lowest if lowest < minimum else highest
        raise IndexError(
            f"{name} contains {wrong}; all must be from {minimum} to {limit - 1}. {remedy}".rstrip()
        )


def check_numbers(**numbers: Any) -> None:
    """Check that all arguments are numbers of Python."""
    for name, number in numbers.items():
        if type(number) not in (int, float):  # isinstance would accept a bool
            raise TypeError(f"{name} is a {type(number).__name__}; it must be a float")


def _kind(tensor: Tensor) -> str:
    layout = "" if tensor.layout is torch.strided else f" with layout {tensor.layout}"
    return f"a tensor of {tensor.dtype} on {tensor.device}{layout}"
