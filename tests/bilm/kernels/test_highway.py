"""The highway layer in C compared with plain PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch

from bilm.kernels import backends
from bilm.model.token_encoder import Highway
from tests.bilm.conftest import needs_compiler

pytestmark = needs_compiler


def layer(dtype: torch.dtype) -> Highway:
    torch.manual_seed(0)
    highway = Highway(13).to(dtype)
    with torch.no_grad():
        for parameter in highway.parameters():
            parameter.normal_()
    return highway


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_c_matches_torch(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c = layer(dtype)
    plain = copy.deepcopy(in_c)
    x = torch.randn(7, 13, dtype=dtype)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    grad = torch.randn(7, 13, dtype=dtype)
    actual = in_c(inputs[0])
    actual.backward(grad)
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    expected = plain(inputs[1])
    expected.backward(grad)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(actual, expected, **tolerance)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, **tolerance)
    for one, other in zip(in_c.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **tolerance)


def test_rejects_second_backward() -> None:
    highway = layer(torch.float32)
    out = highway(torch.randn(3, 13)).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="highway layer has already run"):
        out.backward()
