"""The highway layer compared with plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from bilm.kernels.highway import HighwayWeights, plain_highway
from bilm.kernels.triton_ops.highway import highway
from tests.bilm.kernels.triton_ops.comparing import (
    DEVICE,
    DTYPES,
    assert_near,
    gradient,
    leaf,
    random_tensor,
)

NAMES = ("x", *HighwayWeights._fields)


def arguments(words: int, dim: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(words, dim), (dim, dim), (dim,), (dim, dim), (dim,)]
    return [random_tensor(*shape, dtype=dtype, scale=0.5) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("words", "dim"), [(37, 53), (1, 1)])
def test_matches_float64(words: int, dim: int, dtype: torch.dtype) -> None:
    values = arguments(words, dim, dtype)
    x, *weights = (leaf(value) for value in values)
    plain_x, *plain_weights = (leaf(value, torch.float64) for value in values)
    y, expected = (
        highway(x, HighwayWeights(*weights)),
        plain_highway(plain_x, HighwayWeights(*plain_weights)),
    )
    assert y.dtype == dtype
    grad = random_tensor(words, dim, dtype=dtype)
    y.backward(grad)
    expected.backward(grad.double())
    assert_near(y, expected, dtype, "highway y")
    for name, actual, plain in zip(NAMES, [x, *weights], [plain_x, *plain_weights], strict=True):
        assert_near(gradient(actual), gradient(plain), dtype, f"highway grad {name}")


def test_nan_and_empty() -> None:
    x, *weights = arguments(4, 8, torch.float32)
    x[1, 2] = math.nan
    y = highway(x, HighwayWeights(*weights))
    assert y[1].isnan().all()
    assert y[[0, 2, 3]].isfinite().all()
    assert highway(x[:0], HighwayWeights(*weights)).shape == (0, 8)


def test_autocast_lowers_the_products_only() -> None:
    values = arguments(5, 16, torch.float32)
    x, *weights = (leaf(value) for value in values)
    with torch.autocast(DEVICE, torch.bfloat16):
        y = highway(x, HighwayWeights(*weights))
    y.sum().backward()
    assert y.dtype == gradient(x).dtype == gradient(weights[0]).dtype == torch.float32
    expected = plain_highway(values[0].double(), HighwayWeights(*(w.double() for w in weights)))
    assert_near(y, expected, torch.bfloat16, "highway autocast")
