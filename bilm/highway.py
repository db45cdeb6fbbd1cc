"""A highway layer: part of the input is transformed, the rest carried on.

Cost, forward, per word: 2 x dim x dim multiply-adds. Everything around the two products is one pass
of C where we have the kernels, forward and backward; plain torch is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm import native


class Highway(nn.Module):
    """`y = g * relu(x Wt + bt) + (1 - g) * x` with `g = sigmoid(x Wg + bg)`.

    The published files call Wg `W_carry`, though it opens for the transform.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate_weight = nn.Parameter(torch.empty(dim, dim))
        self.gate_bias = nn.Parameter(torch.empty(dim))
        self.transform_weight = nn.Parameter(torch.empty(dim, dim))
        self.transform_bias = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mostly carry at the start: the gate's bias is -2."""
        std = math.sqrt(1.0 / self.gate_weight.shape[0])
        nn.init.normal_(self.gate_weight, 0.0, std)
        nn.init.constant_(self.gate_bias, -2.0)
        nn.init.normal_(self.transform_weight, 0.0, std)
        nn.init.zeros_(self.transform_bias)

    def forward(self, x: Tensor) -> Tensor:
        is_lower = torch.is_autocast_enabled(x.device.type)
        if not is_lower and native.is_available(x, self.gate_weight):
            fused = cast(Callable[..., Tensor], _FusedHighway.apply)
            return fused(
                *(x.contiguous(), self.gate_weight, self.gate_bias),
                *(self.transform_weight, self.transform_bias),
            )
        gate = torch.sigmoid(torch.addmm(self.gate_bias, x, self.gate_weight))
        transform = F.relu(torch.addmm(self.transform_bias, x, self.transform_weight))
        return gate * transform + (1 - gate) * x


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
