"""Counter-based dropout: known words of the generator, and the bits of the plain reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import triton
import triton.language as tl

from bilm.kernels.dropout import MASK_32, Mask, plain_dropout
from bilm.kernels.triton_ops.dropout import apply_mask
from tests.bilm.kernels.test_dropout import KNOWN
from tests.bilm.kernels.triton_ops.comparing import DEVICE, DTYPES, gradient, leaf, random_tensor


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
        expected = plain_dropout(x.float(), mask)
        assert torch.equal(y == 0, expected == 0)
        grad = plain_dropout(torch.full(x.shape, 3.0, device=DEVICE), mask)
        if dtype == torch.float32:
            assert torch.equal(y, expected)
            assert torch.equal(gradient(tensor), grad)
        else:  # Triton's interpreter truncates when it stores bfloat16; a GPU rounds.
            torch.testing.assert_close(y.float(), expected, rtol=2**-7, atol=0.0)
            torch.testing.assert_close(gradient(tensor).float(), grad, rtol=2**-7, atol=0.0)


def test_accepts_inputs_that_are_not_contiguous() -> None:
    x, mask = random_tensor(4, 3, 8), Mask(3, 4, 5, 1, 1 << 31, 2.0)
    turned = x.transpose(0, 2).contiguous().transpose(0, 2)
    assert torch.equal(apply_mask(turned, mask), plain_dropout(x, mask))
