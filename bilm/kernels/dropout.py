"""Dropout whose masks are a pure function of the place of each element.

A mask depends on the seed, the step, the layer, the direction, the row of the global batch, the
time step and the unit, and on nothing else. Training therefore does not depend on the number of
ranks and micro-batches, no state of a generator has to be saved, and backward computes the mask
again instead of keeping it in memory.

The generator is Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3").
Its key is (seed, step), its counter (unit // 4, time, row, site), and `unit % 4` selects one of its
four words. A unit is set to zero if its word is below `rate * 2**32`. All of this is integer
arithmetic, so every implementation computes the same masks. In C, an element costs 2.5 products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.autograd import apply
from bilm.kernels.c_library import Floats, Kernel, Real, Size
from bilm.kernels.checks import check_dims, check_floats, check_numbers

_dropout = Kernel(
    "dropout",
    time=Size,
    rows=Size,
    dim=Size,
    seed=Size,
    step=Size,
    first_row=Size,
    site=Size,
    threshold=Size,
    scale=Real,
    x=Floats,
    y=Floats,
)

MASK_32 = (1 << 32) - 1
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)


class DropoutSeed(NamedTuple):
    """The values that determine all masks of a forward pass."""

    seed: int
    step: int = 0
    first_row: int = 0  # the number of the first row in the global batch


class Mask(NamedTuple):
    """The mask of one tensor: the place where it is applied, and its rate."""

    seed: int
    step: int
    first_row: int
    site: int
    threshold: int  # words of 32 bits below it are dropped
    scale: float  # of the elements that are kept


def active_seed(
    is_training: bool, rate: float, given: DropoutSeed | None = None
) -> DropoutSeed | None:
    """Return the seed of a forward pass, or None if it has no dropout.

    In training, a seed that is not given is drawn from PyTorch's default generator.
    """
    if not is_training or rate == 0.0:
        return None
    return DropoutSeed(int(torch.randint(1 << 62, ()))) if given is None else given


def dropout(x: Tensor, rate: float, seed: DropoutSeed | None, layer: int, direction: int) -> Tensor:
    """Set a share of `x` (time, rows, dim) to zero and scale the rest by `1 / (1 - rate)`.

    `layer` is the number of the layer that reads `x`; the softmax comes after the last layer.
    Without a seed, `x` is returned unchanged.
    """
    check_floats(x=x)
    check_dims("x", x, "time", "rows", "dim")
    check_numbers(rate=rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"the dropout rate is {rate}; it must be at least 0 and below 1")
    if seed is None:
        return x
    mask = Mask(
        (seed.seed ^ seed.seed >> 32) & MASK_32,
        seed.step & MASK_32,
        seed.first_row,
        2 * layer + direction,
        min(round(rate * 2**32), MASK_32),
        1.0 / (1.0 - rate),
    )
    if x.is_cpu and x.dtype in (torch.bfloat16, torch.float16):
        return _apply_mask(x.float(), mask).to(x.dtype)
    return _apply_mask(x, mask)


def _apply_mask(x: Tensor, mask: Mask) -> Tensor:
    backend = backends.choose(x)
    if backend == "torch":
        return plain_dropout(x, mask)
    if backend == "triton":
        from bilm.kernels.triton_ops import dropout as in_triton

        return in_triton.apply_mask(x, mask)
    return apply(_Dropout, x, mask)


def plain_dropout(x: Tensor, mask: Mask) -> Tensor:
    """Apply a mask in plain PyTorch: the reference."""
    return torch.where(_words(x, mask) >= mask.threshold, x * mask.scale, 0.0)


def _words(x: Tensor, mask: Mask) -> Tensor:
    """Return the random word of each element of `x`."""
    time, rows, dim = x.shape
    quads = torch.arange((dim + 3) // 4, device=x.device)
    times = torch.arange(time, device=x.device).view(-1, 1, 1)
    numbers = torch.arange(rows, device=x.device).add_(mask.first_row).view(-1, 1)
    counter = torch.broadcast_tensors(quads, times, numbers, torch.full_like(quads, mask.site))
    words = philox(counter, (mask.seed, mask.step))
    return torch.stack(words, dim=-1).flatten(2)[..., :dim]


def philox(counter: Sequence[Tensor], key: tuple[int, int]) -> list[Tensor]:
    """Return four random words of 32 bits for each counter of four such words, all as int64."""
    a, b, c, d = counter
    for number in range(_ROUNDS):
        first, second = (
            (word + number * increment) & MASK_32
            for word, increment in zip(key, _INCREMENTS, strict=True)
        )
        # A product of 64 bits may be negative as an int64; its two halves are correct.
        low, high = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (high >> 32 & MASK_32) ^ b ^ first, high & MASK_32
        c, d = (low >> 32 & MASK_32) ^ d ^ second, low & MASK_32
    return [a, b, c, d]


class _Dropout(torch.autograd.Function):
    """The mask in C. It is linear in x, so backward applies the same mask to the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        x = x.contiguous()
        y = torch.empty_like(x)
        time, rows, dim = x.shape
        _dropout(time=time, rows=rows, dim=dim, **mask._asdict(), x=x, y=y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return apply(_Dropout, grads[0], ctx.mask), None
