"""Row updates of the optimizers compared with plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from bilm.kernels.sparse_rows import (
    AdamStep,
    Moments,
    Rows,
    plain_adagrad_rows,
    plain_adam_rows,
)
from bilm.kernels.triton_ops.availability import available
from bilm.kernels.triton_ops.sparse_rows import adagrad_rows, adam_rows
from tests.bilm.kernels.triton_ops.comparing import DEVICE, DTYPES, assert_near, random_tensor

WORDS = 7


def rows_of(dim: int, dtype: torch.dtype) -> Rows:
    torch.manual_seed(0)
    ids = torch.tensor([5, 0, 3], device=DEVICE)
    return Rows(ids, random_tensor(3, dim, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 513])
def test_adagrad_matches_float64(dim: int, dtype: torch.dtype) -> None:
    rows = rows_of(dim, dtype)
    table, sums = random_tensor(WORDS, dim), random_tensor(WORDS, dim).square() + 1.0
    expected = (table.double(), sums.double())
    for _ in range(2):
        plain_adagrad_rows(*expected, Rows(rows.ids, rows.values.double()), 0.2, 1e-10)
        adagrad_rows(table, sums, rows, 0.2, 1e-10)
    assert_near(table, expected[0], torch.float32, "adagrad table")
    assert_near(sums, expected[1], torch.float32, "adagrad sums")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 513])
def test_adam_matches_float64(dim: int, dtype: torch.dtype) -> None:
    rows = rows_of(dim, dtype)
    table = random_tensor(WORDS, dim)
    moments = Moments(torch.zeros_like(table), torch.zeros_like(table))
    expected, plain_moments = table.double(), Moments(*(m.double() for m in moments))
    for number in range(1, 4):
        step = AdamStep(number, 0.01, (0.9, 0.999), 1e-8)
        plain_adam_rows(expected, plain_moments, Rows(rows.ids, rows.values.double()), step)
        adam_rows(table, moments, rows, step)
    assert_near(table, expected, torch.float32, "adam table")
    for actual, plain in zip(moments, plain_moments, strict=True):
        assert_near(actual, plain, torch.float32, "adam moments")


def test_nan_stays_in_its_element() -> None:
    rows = rows_of(4, torch.float32)
    rows.values[1, 2] = math.nan
    table, sums = torch.zeros(WORDS, 4, device=DEVICE), torch.ones(WORDS, 4, device=DEVICE)
    adagrad_rows(table, sums, rows, 0.2, 0.0)
    assert table.isnan().nonzero().tolist() == [[0, 2]]
    empty = Rows(rows.ids[:0], rows.values[:0])
    adagrad_rows(table, sums, empty, 0.2, 0.0)


def test_triton_is_available() -> None:
    assert available()
