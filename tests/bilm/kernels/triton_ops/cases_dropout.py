"""Counter-based dropout: known words of the generator, and the bits of the plain reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from bilm.kernels.triton_ops.dropout import apply_mask
from tests.bilm.kernels.triton_ops.comparing import DEVICE, DTYPES, gradient, leaf, random_tensor

MASK_32 = (1 << 32) - 1
# counter, key and result from kat_vectors of Random123
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK_32,) * 4, (MASK_32,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


class Mask(NamedTuple):
    seed: int
    step: int
    first_row: int
    site: int
    threshold: int
    scale: float


def philox(counter: Sequence[Tensor], key: tuple[int, int]) -> list[Tensor]:
    """Return four random words of 32 bits for each counter of four such words, all as int64."""
    a, b, c, d = counter
    for number in range(10):
        first = (key[0] + number * 0x9E3779B9) & MASK_32
        second = (key[1] + number * 0xBB67AE85) & MASK_32
        # A product of 64 bits may be negative as an int64; its two halves are correct.
        low, high = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = (high >> 32 & MASK_32) ^ b ^ first, high & MASK_32
        c, d = (low >> 32 & MASK_32) ^ d ^ second, low & MASK_32
    return [a, b, c, d]


def plain_mask(x: Tensor, mask: Mask) -> Tensor:
    time, rows, dim = x.shape
    quads = torch.arange((dim + 3) // 4, device=x.device)
    times = torch.arange(time, device=x.device).view(-1, 1, 1)
    numbers = torch.arange(rows, device=x.device).add_(mask.first_row).view(-1, 1)
    counter = torch.broadcast_tensors(quads, times, numbers, torch.full_like(quads, mask.site))
    words = torch.stack(philox(counter, (mask.seed, mask.step)), dim=-1).flatten(2)[..., :dim]
    return torch.where(words >= mask.threshold, x * mask.scale, 0.0)


@triton.jit
def write_words(counter, key, words):
    """Write the random words of one counter; all tensors are int64."""
    c0, c1 = tl.load(counter).to(tl.uint32), tl.load(counter + 1).to(tl.uint32)
    c2, c3 = tl.load(counter + 2).to(tl.uint32), tl.load(counter + 3).to(tl.uint32)
    seed = (tl.load(key + 1).to(tl.uint64) << 32) | tl.load(key).to(tl.uint64)
    a, b, c, d = tl.philox(seed, c0, c1, c2, c3, n_rounds=10)
    tl.store(words, a.to(tl.int64))
    tl.store(words + 1, b.to(tl.int64))
    tl.store(words + 2, c.to(tl.int64))
    tl.store(words + 3, d.to(tl.int64))


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_generator_equals_known_words(
    counter: Sequence[int], key: tuple[int, int], expected: Sequence[int]
) -> None:
    plain = philox([torch.tensor([word]) for word in counter], key)
    assert [int(word) for word in plain] == list(expected)
    words = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    write_words[(1,)](torch.tensor(counter, device=DEVICE), torch.tensor(key, device=DEVICE), words)
    assert words.tolist() == list(expected)


def test_words_below_the_threshold_are_dropped() -> None:
    x = torch.ones(1, 1, 4, device=DEVICE)
    for unit, word in enumerate(KNOWN[0][2]):
        assert apply_mask(x, Mask(0, 0, 0, 0, word, 2.0))[0, 0, unit] == 2.0
        assert apply_mask(x, Mask(0, 0, 0, 0, word + 1, 2.0))[0, 0, unit] == 0.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 1), (2, 3, 7), (2, 3, 64), (1, 2, 700), (0, 3, 4)])
def test_bits_equal_the_reference(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = random_tensor(*shape, dtype=dtype)
    masks = [
        Mask(3, 4, 5, 1, round(0.1 * 2**32), 1 / 0.9),
        Mask(MASK_32, MASK_32, 1 << 31, 101, 1 << 31, 2.0),
        Mask(1, 1, 1, 1, 1, 1.0),
    ]
    for mask in masks:
        tensor = leaf(x)
        y = apply_mask(tensor, mask)
        y.backward(torch.full_like(y, 3.0))
        expected = plain_mask(x.float(), mask)
        assert torch.equal(y == 0, expected == 0)
        grad = plain_mask(torch.full(x.shape, 3.0, device=DEVICE), mask)
        if dtype == torch.float32:
            assert torch.equal(y, expected)
            assert torch.equal(gradient(tensor), grad)
        else:  # Triton's interpreter truncates when it stores bfloat16; a GPU rounds.
            torch.testing.assert_close(y.float(), expected, rtol=2**-7, atol=0.0)
            torch.testing.assert_close(gradient(tensor).float(), grad, rtol=2**-7, atol=0.0)


def test_accepts_inputs_that_are_not_contiguous() -> None:
    x, mask = random_tensor(4, 3, 8), Mask(3, 4, 5, 1, 1 << 31, 2.0)
    turned = x.transpose(0, 2).contiguous().transpose(0, 2)
    assert torch.equal(apply_mask(turned, mask), plain_mask(x, mask))
