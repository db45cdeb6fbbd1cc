"""Counter-based dropout: known words of the generator, the same bits in C, and statistics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from bilm.kernels import backends
from bilm.kernels.dropout import (
    MASK_32,
    DropoutSeed,
    Mask,
    _apply_mask,
    active_seed,
    dropout,
    philox,
    plain_dropout,
)
from tests.bilm.conftest import needs_compiler

SEED = DropoutSeed(3, step=4, first_row=5)

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


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_generator_equals_known_words(
    counter: Sequence[int], key: tuple[int, int], expected: Sequence[int]
) -> None:
    words = philox([torch.tensor([word]) for word in counter], key)
    assert [int(word) for word in words] == list(expected)


def test_backend_drops_words_below_the_threshold(backend: str) -> None:
    """The words of the counter 0 and of the key 0 are known; they are found bit by bit."""
    x = torch.ones(1, 1, 4)
    for unit, word in enumerate(KNOWN[0][2]):
        kept = _apply_mask(x, Mask(0, 0, 0, 0, threshold=word, scale=2.0))
        dropped = _apply_mask(x, Mask(0, 0, 0, 0, threshold=word + 1, scale=2.0))
        assert kept[0, 0, unit] == 2.0
        assert dropped[0, 0, unit] == 0.0


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 5, 1), (2, 3, 7), (4, 6, 64), (1, 2, 700), (0, 3, 4)])
def test_c_and_torch_have_the_same_bits(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    seeds = [DropoutSeed(0), SEED, DropoutSeed((1 << 63) - 1, (1 << 32) - 1, 1 << 31)]
    for seed in seeds:
        for rate in (1e-9, 0.1, 0.5, 0.999, 1 - 1e-12):
            results = []
            for name in ("c", "torch"):
                monkeypatch.setattr(backends, "requested", lambda name=name: name)
                leaf = x.clone().requires_grad_()
                y = dropout(leaf, rate, seed, layer=50, direction=1)
                y.backward(torch.full_like(y, 3.0))
                results.append((y.detach(), leaf.grad))
            (in_c, grad_in_c), (plain, plain_grad) = results
            assert in_c.dtype == dtype
            assert torch.equal(in_c, plain)
            assert torch.equal(grad_in_c, plain_grad)


def test_each_coordinate_changes_the_mask(backend: str) -> None:
    x = torch.ones(6, 6, 40)

    def kept(seed: DropoutSeed = SEED, layer: int = 1, direction: int = 0) -> torch.Tensor:
        return dropout(x, 0.5, seed, layer, direction) != 0

    base = kept()
    others = [kept(SEED._replace(**{name: 77})) for name in DropoutSeed._fields]
    others += [
        kept(layer=0),
        kept(layer=2),
        kept(direction=1),
        kept(SEED._replace(seed=3 + (1 << 40))),
    ]
    others += [base.roll(1, dim) for dim in range(3)]
    for other in others:
        assert 0.4 < (base == other).double().mean() < 0.6
    shifted = kept(SEED._replace(first_row=SEED.first_row + 2))
    assert torch.equal(shifted[:, :4], base[:, 2:])


def test_share_and_scale(backend: str) -> None:
    x = torch.ones(20, 50, 100)
    y = dropout(x, 0.1, SEED, 0, 0)
    assert set(y.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.9))}
    assert 0.097 < (y == 0).double().mean() < 0.103
    assert 0.997 < y.mean() < 1.003


def test_gradient_is_dropped_alike(backend: str) -> None:
    x = torch.randn(3, 4, 9, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: dropout(x, 0.4, SEED, 0, 0), x)
    assert torch.autograd.gradgradcheck(lambda x: dropout(x, 0.4, SEED, 0, 0) ** 2, x)


def test_accepts_inputs_that_are_not_contiguous(backend: str) -> None:
    x = torch.randn(4, 3, 8)
    expected = dropout(x, 0.5, SEED, 0, 0)
    assert torch.equal(
        dropout(x.transpose(0, 2).contiguous().transpose(0, 2), 0.5, SEED, 0, 0), expected
    )
    wide = torch.ones(()).expand(4, 3, 8)
    assert torch.equal(dropout(wide, 0.5, SEED, 0, 0), dropout(wide.clone(), 0.5, SEED, 0, 0))


def test_seed_is_active_only_in_training() -> None:
    assert active_seed(False, 0.5, SEED) is None
    assert active_seed(True, 0.0, SEED) is None
    assert active_seed(True, 0.5, SEED) is SEED
    x = torch.randn(2, 3, 4)
    assert dropout(x, 0.5, None, 0, 0) is x


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rejects_rate_outside_range(rate: float) -> None:
    with pytest.raises(ValueError, match="the dropout rate is"):
        dropout(torch.ones(1, 1, 1), rate, SEED, 0, 0)


def test_stored_mask(backend: str) -> None:
    """A change of the masks changes every run with dropout and needs an entry in CHANGELOG.md."""
    y = dropout(torch.ones(1, 2, 16), 0.5, SEED, layer=2, direction=1)
    rows = ["".join(str(int(bit)) for bit in row) for row in (y[0] != 0).tolist()]
    assert rows == ["1011000111100000", "1100111101000001"]


def test_plain_dropout_is_the_reference(backend: str) -> None:
    x = torch.randn(2, 3, 5)
    mask = Mask(1, 2, 3, 4, 1 << 31, 2.0)
    assert torch.equal(_apply_mask(x, mask), plain_dropout(x, mask))
