"""The fused highway layer against plain torch."""

from __future__ import annotations

import copy

import pytest
import torch

from bilm.kernels import c_library as native
from bilm.model.token_encoder import Highway


def layer(dtype: torch.dtype) -> Highway:
    torch.manual_seed(0)
    highway = Highway(13).to(dtype)
    with torch.no_grad():
        for parameter in highway.parameters():
            parameter.normal_()
    return highway


@pytest.mark.skipif(native.library() is None, reason="needs a compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_equals_plain(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = layer(dtype)
    plain = copy.deepcopy(fused)
    x = torch.randn(7, 13, dtype=dtype)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    grad = torch.randn(7, 13, dtype=dtype)
    ours = fused(inputs[0])
    ours.backward(grad)
    monkeypatch.setattr(native, "library", lambda: None)
    theirs = plain(inputs[1])
    theirs.backward(grad)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(ours, theirs, **tolerance)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, **tolerance)
    for one, other in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **tolerance)


@pytest.mark.skipif(native.library() is None, reason="needs a compiler")
def test_a_second_backward_is_refused() -> None:
    highway = layer(torch.float32)
    out = highway(torch.randn(3, 13)).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="run already"):
        out.backward()
