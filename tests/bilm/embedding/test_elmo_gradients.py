"""The gradients of `Elmo`, compared with finite differences in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm import Elmo
from bilm.kernels import backends
from tests.bilm.embedding.elmo_models import SENTENCES, tiny


def loss_of(elmo: Elmo) -> Tensor:
    (one, other), mask = elmo(SENTENCES)
    scale = torch.linspace(-1, 1, one.numel(), dtype=one.dtype).view_as(one)
    return (one * scale).sum() + other[mask].square().sum() + elmo.penalty()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradients_equal_finite_differences(backend: str, layer_norm: bool) -> None:
    elmo = Elmo(tiny(), 2, trainable=True, dropout=0.0, layer_norm=layer_norm).double()
    loss_of(elmo).backward()
    torch.manual_seed(1)
    step = 1e-6
    for name, weight in elmo.named_parameters():
        assert weight.grad is not None, name
        change = torch.randn_like(weight)
        with torch.no_grad():
            weight.add_(change, alpha=step)
            above = loss_of(elmo)
            weight.sub_(change, alpha=2 * step)
            below = loss_of(elmo)
            weight.add_(change, alpha=step)
        expected = (above - below) / (2 * step)
        torch.testing.assert_close(
            (weight.grad * change).sum(), expected, atol=1e-5, rtol=1e-5, msg=name
        )


def test_gradcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every element in plain PyTorch: gradcheck runs backward several times."""
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    small = {"embedding_dim": 2, "filters": [[1, 2], [2, 2]], "num_highway": 1}
    pretrained = tiny(characters=small, lstm={"dim": 3, "projection_dim": 2})
    elmo = Elmo(pretrained, trainable=True, dropout=0.0).double()
    batch = elmo.prepare([["ab", "c"], ["ab"]])
    weights = [w for name, w in elmo.named_parameters() if "char_embedding" not in name]
    assert torch.autograd.gradcheck(lambda *_: elmo(batch).outputs[0], weights, atol=1e-6)
