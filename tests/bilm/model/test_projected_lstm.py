"""The layer compared with a cell in NumPy, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bilm.kernels import backends
from bilm.kernels.lstm_types import LayerState
from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm

TIME, ROWS = 6, 5


def lstm_of(scale: float = 1.0, **changes: object) -> ProjectedLstm:
    fields = {"dim": 8, "projection_dim": 4, "num_layers": 1, "cell_clip": 0.6}
    lstm = ProjectedLstm(
        LstmConfig.model_validate({**fields, "projection_clip": 0.5, **changes})
    ).double()
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(0.0, scale)
    return lstm


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(lstm: ProjectedLstm, x: np.ndarray, c: np.ndarray, h: np.ndarray):
    config = lstm.config
    weight, bias = lstm.weight.detach().numpy(), lstm.bias.detach().numpy()
    outputs = []
    clipped = 0
    for t in range(len(x)):
        z = np.concatenate([x[t], h], axis=1) @ weight + bias
        i, j, f, o = np.split(z, 4, axis=1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        if config.cell_clip:
            clipped += (abs(c) > config.cell_clip).sum()
            c = np.clip(c, -config.cell_clip, config.cell_clip)
        h = sigmoid(o) * np.tanh(c)
        if lstm.projection is not None:
            h = h @ lstm.projection.detach().numpy()
            if config.projection_clip:
                clipped += (abs(h) > config.projection_clip).sum()
                h = np.clip(h, -config.projection_clip, config.projection_clip)
        outputs.append(h)
    return np.stack(outputs), c, h, clipped


def inputs(lstm: ProjectedLstm) -> tuple[torch.Tensor, LayerState]:
    torch.manual_seed(3)
    dims = (lstm.input_dim, lstm.config.dim, lstm.output_dim)
    shapes = ((TIME, ROWS, dims[0]), (ROWS, dims[1]), (ROWS, dims[2]))
    x, c, h = (torch.randn(*shape, dtype=torch.double) for shape in shapes)
    return x, LayerState(c, h)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell_clip": None},
        {"projection_clip": None},
        {"cell_clip": None, "projection_clip": None},
        {"projection_dim": 8},
        {"dim": 1, "projection_dim": 1},
    ],
)
def test_matches_reference(changes: dict[str, object]) -> None:
    lstm = lstm_of(**changes)
    x, (c, h) = inputs(lstm)
    outputs, (cell, hidden) = lstm(x, LayerState(c, h))
    expected, expected_c, expected_h, clipped = reference(lstm, x.numpy(), c.numpy(), h.numpy())
    np.testing.assert_allclose(outputs.detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(cell.detach().numpy(), expected_c, atol=1e-12)
    np.testing.assert_allclose(hidden.detach().numpy(), expected_h, atol=1e-12)
    if lstm.config.cell_clip or lstm.config.projection_clip:
        assert clipped > 0  # otherwise the clips are not tested


def test_projection_clip_has_no_effect_without_projection() -> None:
    lstm = lstm_of(projection_dim=8, projection_clip=0.01)
    assert lstm.projection is None
    outputs, _ = lstm(*inputs(lstm))
    assert outputs.abs().max() > 0.1


def test_gradients_equal_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the plain loop, the reference for C: gradcheck runs backward several times."""
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    lstm = lstm_of(0.5, dim=3, projection_dim=2)
    x, state = inputs(lstm)
    c, h = state
    for tensor in (x, c, h):
        tensor.requires_grad_()

    def run(x: torch.Tensor, c: torch.Tensor, h: torch.Tensor, *_: torch.Tensor):
        outputs, (cell, hidden) = lstm(x, LayerState(c, h))
        return outputs, cell, hidden

    assert torch.autograd.gradcheck(run, (x, c, h, *lstm.parameters()), atol=1e-6)


def test_row_keeps_its_state_after_its_last_word() -> None:
    lstm = lstm_of()
    x, (c, h) = inputs(lstm)
    lengths = torch.tensor([6, 5, 3, 1, 0])
    outputs, (cell, hidden) = lstm(x, LayerState(c, h), lengths)
    for row, length in enumerate(lengths.tolist()):
        one = LayerState(c[row : row + 1], h[row : row + 1])
        if length == 0:
            assert torch.equal(cell[row], c[row])
            continue
        alone, (alone_c, alone_h) = lstm(x[:length, row : row + 1], one)
        torch.testing.assert_close(outputs[:length, row], alone[:, 0])
        torch.testing.assert_close(cell[row], alone_c[0])
        torch.testing.assert_close(hidden[row], alone_h[0])


def test_carried_state_equals_one_run() -> None:
    lstm = lstm_of()
    x, state = inputs(lstm)
    expected = lstm(x, state)
    first = lstm(x[:2], state)
    second = lstm(x[2:], first.state)
    torch.testing.assert_close(torch.cat([first.outputs, second.outputs]), expected.outputs)
    torch.testing.assert_close(second.state.cell, expected.state.cell)


def test_initial_weights_have_expected_scale() -> None:
    torch.manual_seed(0)
    lstm = ProjectedLstm(LstmConfig(dim=4096, projection_dim=512, num_layers=1))
    limit = math.sqrt(6 / (1024 + 16384))
    assert round(limit, 6) == 0.018565
    assert 0.999 * limit < lstm.weight.abs().max().item() <= limit
    assert lstm.projection is not None
    limit = math.sqrt(6 / (4096 + 512))
    assert 0.999 * limit < lstm.projection.abs().max().item() <= limit
    assert not lstm.bias.any()
