"""The pass over the logits and the sums of rows compared with plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from bilm.kernels.sampled_softmax import plain_to_probabilities
from bilm.kernels.triton_ops.sampled_softmax import add_rows, to_probabilities
from tests.bilm.kernels.triton_ops.comparing import DEVICE, DTYPES, assert_near, random_tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("negatives", [1, 37, 2048, 2049 + 2048])
def test_matches_float64(negatives: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = random_tensor(3, negatives, dtype=dtype, scale=3.0)
    bias, true_logit = random_tensor(negatives), random_tensor(3, scale=3.0)
    hits = torch.tensor([-1, negatives - 1, -1], device=DEVICE)
    expected = logits.double()
    plain = plain_to_probabilities(expected, bias.double(), true_logit.double(), hits)
    results = to_probabilities(logits, bias, true_logit, hits)
    assert_near(logits, expected, dtype, "softmax probabilities")
    assert logits[1, -1] == 0
    for name, actual, reference in zip(("losses", "true share"), results, plain, strict=True):
        assert actual.dtype == torch.float32
        assert_near(actual, reference, torch.float32, f"softmax {name}")


def test_extreme_and_non_finite_logits() -> None:
    logits = torch.tensor([[900.0, -900.0], [1.0, math.nan], [-math.inf, 0.0]], device=DEVICE)
    true_logit = torch.tensor([-900.0, 0.0, -math.inf], device=DEVICE)
    hits, bias = torch.full((3,), -1, device=DEVICE), torch.zeros(2, device=DEVICE)
    losses, true_share = to_probabilities(logits, bias, true_logit, hits)
    assert losses.tolist()[0] == 1800.0
    assert losses[1].isnan()
    assert logits[1].isnan().all()
    assert losses[2] == math.inf
    assert logits[[0, 2]].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert true_share[[0, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [1, 513])
def test_add_rows_matches_float64(dim: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    sums, scale = random_tensor(6, dim), random_tensor(9)
    rows = random_tensor(9, dim, dtype=dtype)
    places = torch.tensor([5, 0, 0, 3, 5, 5, 1, 0, 3], device=DEVICE)
    expected = sums.double().index_add_(0, places, rows.double() * scale.double().unsqueeze(1))
    untouched = sums[[2, 4]].clone()
    add_rows(sums, places, rows, scale)
    assert_near(sums, expected, torch.float32, "add_rows")
    assert torch.equal(sums[[2, 4]], untouched)


def test_add_rows_accepts_no_rows() -> None:
    sums = random_tensor(2, 3)
    before = sums.clone()
    places = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    add_rows(sums, places, random_tensor(0, 3), random_tensor(0))
    assert torch.equal(sums, before)
