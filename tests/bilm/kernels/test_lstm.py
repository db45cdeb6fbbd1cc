"""The LSTM in C compared with plain PyTorch: outputs, states and all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.lstm_types import LayerState
from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm
from tests.bilm.conftest import needs_compiler

pytestmark = needs_compiler

TIME, ROWS = 7, 5
SHAPES = [
    {},
    {"cell_clip": None},
    {"projection_clip": None},
    {"projection_dim": 24},
    {"dim": 1, "projection_dim": 1},
    {"dim": 37, "projection_dim": 11},  # not multiples of the vector width of the processor
]


def lstm_of(dtype: torch.dtype, **changes: object) -> ProjectedLstm:
    fields = {"dim": 24, "projection_dim": 8, "num_layers": 1}
    clips = {"cell_clip": 0.6, "projection_clip": 0.5}
    torch.manual_seed(0)
    lstm = ProjectedLstm(LstmConfig.model_validate({**fields, **clips, **changes})).to(dtype)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(0.0, 0.8)
    return lstm


def run(lstm: ProjectedLstm, dtype: torch.dtype, rows: int = ROWS) -> dict[str, Tensor]:
    """Return outputs, states and the gradients of a weighted sum of all of them."""
    torch.manual_seed(1)
    config = lstm.config
    shapes = ((TIME, rows, lstm.input_dim), (rows, config.dim), (rows, lstm.output_dim))
    x, c, h = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes)
    outputs, (cell, hidden) = lstm(x, LayerState(c, h))
    weighted_sum([outputs, cell, hidden]).backward()
    tensors = {"outputs": outputs, "cell": cell, "hidden": hidden}
    tensors |= {"grad x": x.grad, "grad c": c.grad, "grad h": h.grad}
    tensors |= {f"grad {name}": p.grad for name, p in lstm.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def weighted_sum(results: list[Tensor]) -> Tensor:
    weights = [torch.randn_like(result) for result in results]
    return torch.stack([(r * w).sum() for r, w in zip(results, weights, strict=True)]).sum()


@pytest.mark.parametrize("changes", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["f64", "f32"]
)
def test_c_matches_torch(
    changes: dict[str, object],
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_c = run(lstm_of(dtype, **changes), dtype)
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    plain = run(lstm_of(dtype, **changes), dtype)
    assert in_c.keys() == plain.keys()
    for name, expected in plain.items():
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(in_c[name], expected, rtol=0, atol=tolerance * scale, msg=name)


@pytest.mark.parametrize("with_lengths", [False, True])
def test_inference_equals_training(with_lengths: bool) -> None:
    lstm = lstm_of(torch.float32)
    torch.manual_seed(1)
    x, c, h = torch.randn(TIME, ROWS, 8), torch.randn(ROWS, 24), torch.randn(ROWS, 8)
    lengths = torch.tensor([7, 6, 3, 1, 0]) if with_lengths else None
    trained = lstm(x, LayerState(c, h), lengths)
    before = (c.clone(), h.clone(), x.clone())
    with torch.inference_mode():
        inferred = lstm(x, LayerState(c, h), lengths)
    for row, length in enumerate([TIME] * ROWS if lengths is None else lengths.tolist()):
        expected = trained.outputs[:length, row].detach()
        torch.testing.assert_close(inferred.outputs[:length, row], expected, atol=1e-6, rtol=0)
    for actual, expected in zip(inferred.state, trained.state, strict=True):
        torch.testing.assert_close(actual, expected.detach(), atol=1e-6, rtol=0)
    for old, now in zip(before, (c, h, x), strict=True):
        assert torch.equal(old, now)


def test_caller_may_modify_outputs() -> None:
    lstm = lstm_of(torch.float64)
    expected = run(lstm_of(torch.float64), torch.float64)
    torch.manual_seed(1)
    x = torch.randn(TIME, ROWS, 8, dtype=torch.float64, requires_grad=True)
    c = torch.randn(ROWS, 24, dtype=torch.float64, requires_grad=True)
    h = torch.randn(ROWS, 8, dtype=torch.float64, requires_grad=True)
    outputs, (cell, hidden) = lstm(x, LayerState(c, h))
    results = [outputs, cell, hidden]
    loss = weighted_sum(results)
    with torch.no_grad():
        for result in results:
            result.add_(5.0)
    loss.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected["grad x"])


def test_rejects_second_backward() -> None:
    lstm = lstm_of(torch.float32)
    state = LayerState(torch.zeros(ROWS, 24), torch.zeros(ROWS, 8))
    outputs, _ = lstm(torch.randn(TIME, ROWS, 8), state)
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="run forward again"):
        outputs.sum().backward()


def test_two_threads_equal_one() -> None:
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(run(lstm_of(torch.float32), torch.float32, rows=131))
    torch.set_num_threads(1)
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], atol=1e-4, rtol=1e-4)


def test_extreme_gates_give_finite_results() -> None:
    lstm = lstm_of(torch.float32, cell_clip=3.0)
    with torch.no_grad():
        lstm.bias.copy_(torch.linspace(-200, 200, lstm.bias.numel()))
    results = run(lstm, torch.float32)
    assert all(torch.isfinite(tensor).all() for tensor in results.values())


def test_inference_with_lengths_equals_each_row_alone() -> None:
    """Rows that have ended are not computed: their outputs are zeros."""
    for changes in SHAPES:
        lstm = lstm_of(torch.float64, **changes)
        dim, width = lstm.config.dim, lstm.output_dim
        torch.manual_seed(1)
        x = torch.randn(TIME, ROWS, width, dtype=torch.float64)
        c, h = torch.randn(ROWS, dim).double(), torch.randn(ROWS, width).double()
        for lengths in ([7, 6, 3, 1, 0], [5, 5, 2, 2, 2], [0] * 5, [7] * 5):
            with torch.inference_mode():
                outputs, (cell, hidden) = lstm(x, LayerState(c, h), torch.tensor(lengths))
                for row, length in enumerate(lengths):
                    one = slice(row, row + 1)
                    assert not outputs[length:, row].any()
                    if length == 0:
                        assert torch.equal(cell[row], c[row])
                        assert torch.equal(hidden[row], h[row])
                        continue
                    alone = lstm(x[:length, one], LayerState(c[one], h[one]))
                    torch.testing.assert_close(outputs[:length, one], alone.outputs)
                    torch.testing.assert_close(cell[one], alone.state.cell)
                    torch.testing.assert_close(hidden[one], alone.state.hidden)


def test_rejects_rows_that_are_not_sorted_by_length() -> None:
    lstm = lstm_of(torch.float32)
    state = LayerState(torch.zeros(ROWS, 24), torch.zeros(ROWS, 8))
    with pytest.raises(ValueError, match=r"lengths are \[7, 1, 0, 3, 6\]; rows must be sorted"):
        lstm(torch.zeros(TIME, ROWS, 8), state, torch.tensor([7, 1, 0, 3, 6]))
