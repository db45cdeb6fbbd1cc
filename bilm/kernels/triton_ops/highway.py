"""The highway layer in Triton: three launches forward, of which two are products."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.autograd import allow_one_backward, apply, without_second_derivative
from bilm.kernels.highway import HighwayWeights
from bilm.kernels.triton_ops.activations import sigmoid
from bilm.kernels.triton_ops.launching import BLOCK, blocks, launch


def highway(x: Tensor, weights: HighwayWeights) -> Tensor:
    """Compute `bilm.kernels.highway.highway`; the result has the dtype of `x`.

    Products run in the precision of autocast, if it is enabled.
    """
    dtype = backends.product_dtype(weights.gate_weight)
    return apply(
        _Highway,
        x.contiguous(),
        weights.gate_weight.to(dtype),
        weights.gate_bias.float().contiguous(),
        weights.transform_weight.to(dtype),
        weights.transform_bias.float().contiguous(),
    )


@triton.jit
def highway_forward(gate, transform, gate_bias, transform_bias, x, y, n, dim, BLOCK: tl.constexpr):
    """Mix `x` and the transformed input; `gate` and `transform` receive their activations."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = at < n
    unit = at % dim
    g = sigmoid(tl.load(gate + at, ok).to(tl.float32) + tl.load(gate_bias + unit, ok))
    t = tl.load(transform + at, ok).to(tl.float32) + tl.load(transform_bias + unit, ok)
    t = tl.where(t < 0, 0.0, t)
    tl.store(gate + at, g, ok)
    tl.store(transform + at, t, ok)
    tl.store(y + at, g * t + (1 - g) * tl.load(x + at, ok).to(tl.float32), ok)


@triton.jit
def highway_backward(gate, transform, x, grad_y, grad_x, n, BLOCK: tl.constexpr):
    """Turn `gate` and `transform` into gradients; `grad_x` receives that of the carried part."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = at < n
    g = tl.load(gate + at, ok).to(tl.float32)
    t = tl.load(transform + at, ok).to(tl.float32)
    gy = tl.load(grad_y + at, ok).to(tl.float32)
    difference = t - tl.load(x + at, ok).to(tl.float32)
    tl.store(gate + at, gy * difference * g * (1 - g), ok)
    tl.store(transform + at, tl.where(t > 0, gy * g, 0.0), ok)
    tl.store(grad_x + at, gy * (1 - g), ok)


class _Highway(torch.autograd.Function):
    """Backward overwrites the saved gate and transform with their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        transform_weight: Tensor,
        transform_bias: Tensor,
    ) -> Tensor:
        lower = x.to(gate_weight.dtype)
        gate, transform, y = lower @ gate_weight, lower @ transform_weight, torch.empty_like(x)
        launch(
            highway_forward,
            (blocks(x.numel()),),
            gate,
            transform,
            gate_bias,
            transform_bias,
            x,
            y,
            x.numel(),
            x.shape[1],
            BLOCK=BLOCK,
        )
        ctx.save_for_backward(x, gate_weight, transform_weight, gate, transform)
        return y

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        allow_one_backward(ctx, "highway layer")
        x, gate_weight, transform_weight, gate, transform = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        launch(
            highway_backward,
            (blocks(x.numel()),),
            gate,
            transform,
            x,
            grads[0].contiguous(),
            grad_x,
            x.numel(),
            BLOCK=BLOCK,
        )
        grad_gate, grad_transform = gate, transform  # in place
        products = torch.mm(grad_gate, gate_weight.t())
        grad_x += products.addmm_(grad_transform, transform_weight.t())
        columns = x.to(gate.dtype).t()
        return (
            grad_x,
            columns @ grad_gate,
            grad_gate.sum(dim=0, dtype=torch.float32),
            columns @ grad_transform,
            grad_transform.sum(dim=0, dtype=torch.float32),
        )
