"""Helpers for operations with a hand-written backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

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


def without_second_derivative(backward: Callable[P, R]) -> Callable[P, R]:
    """Make `backward` raise an error if its own operations are to be differentiated.

    Second derivatives would be wrong, because C code and saved intermediate results are not
    recorded.
    """

    @functools.wraps(backward)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives of this operation are not supported; remove create_graph=True"
            )
        return backward(*args, **kwargs)

    return checked


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
