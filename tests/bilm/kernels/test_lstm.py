"""The LSTM in C compared with plain PyTorch: outputs, states and all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import backends, lstm_packing
from bilm.kernels.lstm import lstm as lstm_kernel
from bilm.kernels.lstm import lstm_directions, plain_lstm
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
    """A row is computed in the same order in any block of rows, so its results are identical."""
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(run(lstm_of(torch.float32), torch.float32, rows=131))
    torch.set_num_threads(1)
    for name in results[0]:
        if name in ("grad weight", "grad bias", "grad projection"):  # computed by PyTorch
            torch.testing.assert_close(results[0][name], results[1][name], atol=1e-4, rtol=1e-4)
        else:
            assert torch.equal(results[0][name], results[1][name]), name


def test_results_of_a_row_do_not_depend_on_other_rows() -> None:
    lstm = lstm_of(torch.float32, dim=70, projection_dim=40)
    torch.manual_seed(1)
    x, c, h = torch.randn(TIME, 61, 40), torch.randn(61, 70), torch.randn(61, 40)
    with torch.inference_mode():
        together = lstm(x, LayerState(c, h))
        for first, stop in ((0, 1), (7, 9), (3, 40), (55, 61)):
            rows = slice(first, stop)
            alone = lstm(x[:, rows], LayerState(c[rows], h[rows]))
            assert torch.equal(alone.outputs, together.outputs[:, rows])
            assert torch.equal(alone.state.cell, together.state.cell[rows])
            assert torch.equal(alone.state.hidden, together.state.hidden[rows])


@pytest.mark.parametrize("changes", SHAPES)
def test_gradients_with_lengths_match_torch(changes: dict[str, object]) -> None:
    lstm = lstm_of(torch.float64, **changes)
    dim, width = lstm.config.dim, lstm.output_dim
    lengths = torch.tensor([7, 6, 3, 1, 0])
    is_running = (torch.arange(TIME).unsqueeze(1) < lengths).unsqueeze(2)
    gradients = []
    for function in (lstm_kernel, plain_lstm):
        torch.manual_seed(1)
        shapes = ((TIME, ROWS, width), (ROWS, dim), (ROWS, width))
        x, c, h = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
        result = function(x, lstm.weights, lstm.clips, LayerState(c, h), lengths)
        # The outputs of rows that have ended are meaningless, and may have any gradient.
        values = torch.where(is_running, result.outputs, result.outputs.detach())
        loss = weighted_sum([values, *result.state])
        gradients.append(torch.autograd.grad(loss, [x, c, h, *lstm.parameters()]))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-9)


def test_directions_together_equal_each_alone() -> None:
    lstms = [lstm_of(torch.float32, dim=33, projection_dim=20) for _ in range(2)]
    with torch.no_grad():
        lstms[1].weight.neg_()
    torch.manual_seed(1)
    state = LayerState(torch.randn(2, ROWS, 33), torch.randn(2, ROWS, 20))
    inputs = torch.randn(2, TIME, ROWS, 20).unbind()
    together = lstm_directions(inputs, [lstm.weights for lstm in lstms], lstms[0].clips, state)
    together[0].outputs.sum().backward()
    assert not any(gradient(parameter).any() for parameter in lstms[1].parameters())
    for d, (lstm, result) in enumerate(zip(lstms, together, strict=True)):
        alone = lstm(inputs[d], LayerState(state.cell[d], state.hidden[d]))
        assert torch.equal(result.outputs, alone.outputs)
        assert torch.equal(result.state.cell, alone.state.cell)
        assert torch.equal(result.state.hidden, alone.state.hidden)
    expected = torch.autograd.grad(
        lstms[0](inputs[0], LayerState(state.cell[0], state.hidden[0])).outputs.sum(),
        [*lstms[0].parameters()],
    )
    for parameter, value in zip(lstms[0].parameters(), expected, strict=True):
        torch.testing.assert_close(gradient(parameter), value, atol=1e-5, rtol=1e-5)


def gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


@pytest.mark.parametrize("changes", [{}, {"dim": 37, "projection_dim": 11}, {"projection_dim": 24}])
def test_autocast_rounds_factors_of_products_to_bfloat16(changes: dict[str, object]) -> None:
    if not lstm_packing.supports(torch.float32, torch.bfloat16):
        pytest.skip("the processor has no instructions for bfloat16")
    lstm = lstm_of(torch.float32, **changes, cell_clip=None, projection_clip=None)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(0.3)
    expected = run(lstm, torch.float32, rows=13)
    lstm.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        actual = run(lstm, torch.float32, rows=13)
    for name in expected:
        assert actual[name].dtype == torch.float32
        error = (actual[name] - expected[name]).norm() / expected[name].norm()
        assert 1e-5 < error < 3e-2, (name, error)


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
