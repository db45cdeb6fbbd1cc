"""A highway layer: part of the input is transformed, the rest carried on.

Cost, forward, per word: 2 x dim x dim multiply-adds. Everything around the two products is one pass
of C where we have the kernels, forward and backward; plain torch is the reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bilm.kernels import c_library as native


class _FusedHighway(torch.autograd.Function):
    """The layer with one pass around its products; backward uses up what it has kept."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        transform_weight: Tensor,
        transform_bias: Tensor,
    ) -> Tensor:
        gate, transform, y = x @ gate_weight, x @ transform_weight, torch.empty_like(x)
        native.call(
            *("highway_forward", x.dtype, *x.shape, gate, transform, gate_bias, transform_bias),
            *(x, y),
        )
        ctx.save_for_backward(x, gate_weight, transform_weight, gate, transform)
        ctx.is_used_up = False
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_used_up:
            raise RuntimeError(
                "this layer's backward has run already, and has used up what it needs; run forward "
                "again, or set BILM_NATIVE=0 for a path that can go back twice"
            )
        ctx.is_used_up = True
        x, gate_weight, transform_weight, gate, transform = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_y = grads[0].contiguous()
        native.call(
            "highway_backward", x.dtype, *x.shape, gate, transform, x, grad_y, grad_x
        )  # gate and transform are gradients now
        grad_x.addmm_(gate, gate_weight.t()).addmm_(transform, transform_weight.t())
        weights = (x.t() @ gate, gate.sum(dim=0), x.t() @ transform, transform.sum(dim=0))
        return grad_x, *weights
