"""Helpers for operations with a hand-written backward pass."""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Differentiable(Protocol[P, R]):
    """A subclass of `torch.autograd.Function` with the arguments P and the result R."""

    @staticmethod
    def forward(ctx: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute the result."""


def apply(function: Differentiable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function.apply`, which PyTorch leaves untyped, with checked types."""
    result: R = function.apply(*args, **kwargs)  # type: ignore[attr-defined]
    return result


def allow_one_backward(ctx: Any, operation: str) -> None:
    """Raise `RuntimeError` if this backward pass has run before.

    Used by operations whose backward pass overwrites the activations that forward saved.
    """
    if getattr(ctx, "has_run_backward", False):
        raise RuntimeError(
            f"the backward pass of this {operation} has already run and has overwritten its saved "
            "activations; run forward again, or set BILM_KERNELS=torch to allow several backward "
            "passes"
        )
    ctx.has_run_backward = True
