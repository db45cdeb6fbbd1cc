"""The model with the Triton kernels, in Triton's interpreter, compared with the C kernels.

The cases run on the CPU and on the second device, where tensors of two devices cannot be mixed.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.dropout import DropoutSeed
from bilm.kernels.sparse_rows import AdamStep, Moments, Rows, adagrad_rows, adam_rows
from bilm.model.bilstm import BiLstm, BiLstmState
from bilm.model.config import LstmConfig
from bilm.model.language_model import BiLm, training_objective
from bilm.text.vocabulary import IGNORED
from tests.conftest import tiny_model_config
from tests.second_device.device import second_device

TOLERANCE = 1e-6
TIME, ROWS, VOCABULARY = 5, 4, 40
SEED = DropoutSeed(3, step=7, first_row=2)
Tensors = dict[str, Tensor]


@pytest.fixture(params=["cpu", "second"])
def device(request: pytest.FixtureRequest) -> str:
    name = second_device()
    return "cpu" if request.param == "cpu" else name


def select(monkeypatch: pytest.MonkeyPatch, backend: str, device: str) -> None:
    monkeypatch.setattr(backends, "requested", lambda: backend)
    assert backends.choose(torch.zeros(1, device=device)) == backend


def assert_same(actual: Tensors, expected: Tensors) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        difference = (actual[name].detach().cpu() - value.detach()).abs().max()
        scale = max(1.0, float(value.detach().abs().max()))
        assert float(difference) / scale <= TOLERANCE, f"{name} differs by {difference}"


def gradients(module: torch.nn.Module) -> Tensors:
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert len(grads) == len(list(module.parameters()))
    return {name: g.to_dense() if g.is_sparse else g for name, g in grads.items()}


def run_stacks(device: str, lengths: list[int] | None) -> Tensors:
    """Run two layers in two directions from a carried state, with dropout and clipping."""
    torch.manual_seed(0)
    config = LstmConfig(dim=12, projection_dim=6, num_layers=2, cell_clip=0.4, projection_clip=0.2)
    model = BiLstm(config, 2, dropout=0.3).train()
    inputs = [torch.randn(TIME, ROWS, 6) for _ in range(2)]
    state = BiLstmState(torch.randn(2, 2, ROWS, 12) * 0.3, torch.randn(2, 2, ROWS, 6) * 0.1)
    factors = torch.randn(2, 2, TIME, ROWS, 6)
    steps = torch.arange(TIME)[:, None, None]
    is_running = steps < torch.tensor(lengths or [TIME] * ROWS)[:, None]
    factors *= is_running  # outputs after the end of a row are meaningless
    model.to(device)
    xs = [x.to(device).requires_grad_() for x in inputs]
    on_device = None if lengths is None else torch.tensor(lengths, device=device)
    before = BiLstmState(*(part.to(device) for part in state))
    layers, after = model(xs, before, on_device, SEED)
    stacked = torch.stack([torch.stack(own) for own in layers])
    loss = (stacked * factors.to(device)).sum() + after.cell.sum() + after.hidden.sum()
    loss.backward()
    assert (after.cell.abs() == 0.4).any(), "the clip of the cell is not active"
    assert (after.hidden.abs() == 0.2).any(), "the clip of the projection is not active"
    outputs = stacked.detach().cpu() * is_running
    by_input = {f"input {i}": x.grad for i, x in enumerate(xs) if x.grad is not None}
    return {"outputs": outputs, **after._asdict(), **by_input, **gradients(model)}


@pytest.mark.parametrize("lengths", [None, [5, 4, 2, 0]])
def test_stacks_match_c(
    device: str, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    select(monkeypatch, "c", "cpu")
    expected = run_stacks("cpu", lengths)
    select(monkeypatch, "triton", device)
    assert_same(run_stacks(device, lengths), expected)


def run_model(device: str) -> Tensors:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(dropout=0.2), VOCABULARY).train()
    words = torch.randint(0, 255, (9, 50))
    inverse = torch.randint(0, 9, (2, ROWS, TIME))
    targets = torch.randint(0, VOCABULARY, (2, ROWS, TIME))
    targets[0, 1, 2] = IGNORED
    model.to(device)
    negatives = model.draw_negatives((0, 1))
    assert negatives is not None
    own = [n._replace(ids=n.ids.to(device)) for n in negatives]
    ids = (t.to(device) for t in (words, inverse, targets))
    losses, state = model(*ids, model.zero_state(ROWS), own, SEED)
    training_objective(losses, ROWS).backward()
    return {"losses": losses, **state._asdict(), **gradients(model)}


def test_model_matches_c(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, "c", "cpu")
    expected = run_model("cpu")
    select(monkeypatch, "triton", device)
    assert_same(run_model(device), expected)


def run_updates(device: str) -> Tensors:
    torch.manual_seed(0)
    tables = {name: torch.rand(11, 6).to(device) for name in ("a", "sum", "b", "mean", "square")}
    rows = Rows(torch.tensor([1, 4, 7], device=device), torch.randn(3, 6).to(device))
    adagrad_rows(tables["a"], tables["sum"], rows, 0.2, 1e-8)
    moments = Moments(tables["mean"], tables["square"])
    adam_rows(tables["b"], moments, rows, AdamStep(3, 0.2, (0.9, 0.999), 1e-8))
    return tables


def test_updates_match_c(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    select(monkeypatch, "c", "cpu")
    expected = run_updates("cpu")
    select(monkeypatch, "triton", device)
    assert_same(run_updates(device), expected)
