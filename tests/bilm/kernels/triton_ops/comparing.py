"""Comparison of Triton kernels with a reference in float64."""

from __future__ import annotations

import torch
from torch import Tensor

# On a machine with a GPU the cases run the compiled kernels, otherwise Triton's interpreter.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The greatest difference, relative to the greatest absolute value of the reference if that is above
# 1. Triton's interpreter truncates values to bfloat16, with an error of 2 ** -8 that adds up over
# time steps and sums.
# A GPU approximates exp.
TOLERANCES = {torch.float32: 1e-6 if DEVICE == "cpu" else 5e-6, torch.bfloat16: 4e-2}
DTYPES = list(TOLERANCES)


def assert_near(actual: Tensor, expected: Tensor, dtype: torch.dtype, name: str) -> None:
    assert actual.shape == expected.shape, name
    scale = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
    difference = (actual.detach().double() - expected.detach().double()).abs() / scale
    greatest = float(difference.max()) if expected.numel() else 0.0
    print(f"{name} {str(dtype).removeprefix('torch.')}: {greatest:.1e}")
    assert greatest <= TOLERANCES[dtype], f"{name} differs by {greatest}"


def random_tensor(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    """Return normal values that both `dtype` and float64 represent exactly."""
    return (torch.randn(shape) * scale).to(dtype).to(DEVICE)


def leaf(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy that receives a gradient."""
    return tensor.detach().to(dtype or tensor.dtype, copy=True).requires_grad_()


def gradient(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    assert tensor.grad is not None
    return tensor.grad
