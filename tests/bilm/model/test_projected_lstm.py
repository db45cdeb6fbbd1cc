"""The layer against a cell written out in numpy, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bilm.kernels import c_library as native
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


def inputs(lstm: ProjectedLstm) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    dims = (lstm.input_dim, lstm.config.dim, lstm.output_dim)
    shapes = ((TIME, ROWS, dims[0]), (ROWS, dims[1]), (ROWS, dims[2]))
    x, c, h = (torch.randn(*shape, dtype=torch.double) for shape in shapes)
    return x, c, h


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
def test_equals_the_cell_written_out(changes: dict[str, object]) -> None:
    lstm = lstm_of(**changes)
    x, c, h = inputs(lstm)
    outputs, cell, hidden = lstm(x, c, h)
    expected, expected_c, expected_h, clipped = reference(lstm, x.numpy(), c.numpy(), h.numpy())
    np.testing.assert_allclose(outputs.detach().numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(cell.detach().numpy(), expected_c, atol=1e-12)
    np.testing.assert_allclose(hidden.detach().numpy(), expected_h, atol=1e-12)
    if lstm.config.cell_clip or lstm.config.projection_clip:
        assert clipped > 0  # the clips bind, or the test would not see them


def test_without_projection_its_clip_does_nothing() -> None:
    lstm = lstm_of(projection_dim=8, projection_clip=0.01)
    assert lstm.projection is None
    outputs, _, _ = lstm(*inputs(lstm))
    assert outputs.abs().max() > 0.1


def test_gradients_are_those_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the plain loop, with which the fused one is compared: gradcheck goes back many times."""
    monkeypatch.setattr(native, "is_available", lambda *_: False)
    lstm = lstm_of(0.5, dim=3, projection_dim=2)
    x, c, h = (t.requires_grad_() for t in inputs(lstm))

    def run(x: torch.Tensor, c: torch.Tensor, h: torch.Tensor, *_: torch.Tensor):
        return lstm(x, c, h)

    assert torch.autograd.gradcheck(run, (x, c, h, *lstm.parameters()), atol=1e-6)


def test_a_row_keeps_its_state_from_its_length_on() -> None:
    lstm = lstm_of()
    x, c, h = inputs(lstm)
    lengths = torch.tensor([0, 1, 3, 5, 6])
    outputs, cell, hidden = lstm(x, c, h, lengths)
    for row, length in enumerate(lengths.tolist()):
        one = (t[row : row + 1] for t in (c, h))
        if length == 0:
            assert torch.equal(cell[row], c[row])
            continue
        alone, alone_c, alone_h = lstm(x[:length, row : row + 1], *one)
        torch.testing.assert_close(outputs[:length, row], alone[:, 0])
        torch.testing.assert_close(cell[row], alone_c[0])
        torch.testing.assert_close(hidden[row], alone_h[0])


def test_two_halves_with_carried_state_equal_the_whole() -> None:
    lstm = lstm_of()
    x, c, h = inputs(lstm)
    whole, whole_c, _ = lstm(x, c, h)
    first, c1, h1 = lstm(x[:2], c, h)
    second, c2, _ = lstm(x[2:], c1, h1)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(c2, whole_c)


def test_initialisers() -> None:
    torch.manual_seed(0)
    lstm = ProjectedLstm(LstmConfig(dim=4096, projection_dim=512, num_layers=1))
    limit = math.sqrt(6 / (1024 + 16384))
    assert round(limit, 6) == 0.018565
    assert 0.999 * limit < lstm.weight.abs().max().item() <= limit
    assert lstm.projection is not None
    limit = math.sqrt(6 / (4096 + 512))
    assert 0.999 * limit < lstm.projection.abs().max().item() <= limit
    assert not lstm.bias.any()
