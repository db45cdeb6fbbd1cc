"""A highway layer: a gate mixes a transformed input with the input itself.

Cost, forward, per word: 2 x dim x dim multiply-adds. In C, all operations around the two products
are fused into one pass over memory, forward and backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bilm.kernels import backends
from bilm.kernels.autograd import allow_one_backward, apply, without_second_derivative
from bilm.kernels.c_library import Floats, Kernel, Size
from bilm.kernels.checks import check_dims, check_floats, check_shape

_highway_forward = Kernel(
    "highway_forward",
    words=Size,
    dim=Size,
    gate=Floats,
    transform=Floats,
    gate_bias=Floats,
    transform_bias=Floats,
    x=Floats,
    y=Floats,
)
_highway_backward = Kernel(
    "highway_backward",
    words=Size,
    dim=Size,
    gate=Floats,
    transform=Floats,
    x=Floats,
    grad_y=Floats,
    grad_x=Floats,
)


class HighwayWeights(NamedTuple):
    """The weights (dim, dim) and biases (dim,) of a highway layer."""

    gate_weight: Tensor
    gate_bias: Tensor
    transform_weight: Tensor
    transform_bias: Tensor


def highway(x: Tensor, weights: HighwayWeights) -> Tensor:
    """Return `g * relu(x Wt + bt) + (1 - g) * x` with `g = sigmoid(x Wg + bg)`: (words, dim)."""
    check_floats(**weights._asdict(), x=x)
    check_dims("x", x, "words", "dim")
    dim = x.shape[1]
    for name, tensor in zip(weights._fields, weights, strict=True):
        check_shape(name, tensor, *((dim, dim) if name.endswith("weight") else (dim,)))
    backend = backends.choose(x, weights.gate_weight)
    if backend == "c":
        return apply(_Highway, backends.product_dtype(x), x.contiguous(), *weights)
    if backend == "triton":
        from bilm.kernels.triton_ops import highway as in_triton

        return in_triton.highway(x, weights)
    return plain_highway(x, weights)


def plain_highway(x: Tensor, weights: HighwayWeights) -> Tensor:
    """Compute `highway` in plain PyTorch: the reference."""
    gate = torch.sigmoid(torch.addmm(weights.gate_bias, x, weights.gate_weight))
    transform = F.relu(torch.addmm(weights.transform_bias, x, weights.transform_weight))
    return gate * transform + (1 - gate) * x


class _Highway(torch.autograd.Function):
    """The layer in C. Backward overwrites the saved gate and transform with their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        dtype: torch.dtype,
        x: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        transform_weight: Tensor,
        transform_bias: Tensor,
    ) -> Tensor:
        factor, y = x.to(dtype), torch.empty_like(x)
        gate, transform = (
            (factor @ weight.to(dtype)).to(x.dtype) for weight in (gate_weight, transform_weight)
        )
        _highway_forward(
            words=x.shape[0],
            dim=x.shape[1],
            gate=gate,
            transform=transform,
            gate_bias=gate_bias.contiguous(),
            transform_bias=transform_bias.contiguous(),
            x=x,
            y=y,
        )
        ctx.save_for_backward(x, gate_weight, transform_weight, gate, transform)
        ctx.dtype = dtype
        return y

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        allow_one_backward(ctx, "highway layer")
        x, gate_weight, transform_weight, gate, transform = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        _highway_backward(
            words=x.shape[0],
            dim=x.shape[1],
            gate=gate,
            transform=transform,
            x=x,
            grad_y=grads[0].contiguous(),
            grad_x=grad_x,
        )
        grad_gate, grad_transform = gate.to(ctx.dtype), transform.to(ctx.dtype)
        for grad, weight in ((grad_gate, gate_weight), (grad_transform, transform_weight)):
            if ctx.dtype == x.dtype:
                grad_x.addmm_(grad, weight.t())
            else:
                grad_x += grad @ weight.t().to(ctx.dtype)
        factor = x.t().to(ctx.dtype)
        return (
            None,
            grad_x,
            (factor @ grad_gate).to(x.dtype),
            gate.sum(dim=0),
            (factor @ grad_transform).to(x.dtype),
            transform.sum(dim=0),
        )
