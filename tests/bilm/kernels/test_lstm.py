"""The fused loop against the plain one: outputs, states and every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import c_library as native
from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler")

TIME, ROWS = 7, 5
SHAPES = [
    {},
    {"cell_clip": None},
    {"projection_clip": None},
    {"projection_dim": 24},
    {"dim": 1, "projection_dim": 1},
    {"dim": 37, "projection_dim": 11},  # no multiple of a vector's width
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
    """Outputs, states and the gradients of a weighted sum of them all."""
    torch.manual_seed(1)
    config = lstm.config
    shapes = ((TIME, rows, lstm.input_dim), (rows, config.dim), (rows, lstm.output_dim))
    x, c, h = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes)
    results = lstm(x, c, h)
    weights = [torch.randn_like(result) for result in results]
    sum((r * w).sum() for r, w in zip(results, weights, strict=True)).backward()
    found = dict(zip(("outputs", "cell", "hidden"), results, strict=True))
    found |= {"grad x": x.grad, "grad c": c.grad, "grad h": h.grad}
    found |= {f"grad {name}": p.grad for name, p in lstm.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


@pytest.mark.parametrize("changes", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["f64", "f32"]
)
def test_equals_the_plain_loop(
    changes: dict[str, object],
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused = run(lstm_of(dtype, **changes), dtype)
    monkeypatch.setattr(native, "is_available", lambda *_: False)
    plain = run(lstm_of(dtype, **changes), dtype)
    assert fused.keys() == plain.keys()
    for name, expected in plain.items():
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(fused[name], expected, rtol=0, atol=tolerance * scale, msg=name)


@pytest.mark.parametrize("with_lengths", [False, True])
def test_inference_equals_training(with_lengths: bool) -> None:
    lstm = lstm_of(torch.float32)
    torch.manual_seed(1)
    x, c, h = torch.randn(TIME, ROWS, 8), torch.randn(ROWS, 24), torch.randn(ROWS, 8)
    lengths = torch.tensor([7, 1, 0, 3, 6]) if with_lengths else None
    trained = lstm(x, c, h, lengths)
    kept = (c.clone(), h.clone(), x.clone())
    with torch.inference_mode():
        inferred = lstm(x, c, h, lengths)
    for ours, theirs in zip(inferred, trained, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), atol=1e-6, rtol=0)
    for before, now in zip(kept, (c, h, x), strict=True):
        assert torch.equal(before, now)


def test_a_caller_may_change_what_it_gets() -> None:
    lstm = lstm_of(torch.float64)
    untouched = run(lstm_of(torch.float64), torch.float64)
    torch.manual_seed(1)
    x = torch.randn(TIME, ROWS, 8, dtype=torch.float64, requires_grad=True)
    c = torch.randn(ROWS, 24, dtype=torch.float64, requires_grad=True)
    h = torch.randn(ROWS, 8, dtype=torch.float64, requires_grad=True)
    results = lstm(x, c, h)
    weights = [torch.randn_like(result) for result in results]
    loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
    with torch.no_grad():
        for result in results:
            result.add_(5.0)
    loss.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, untouched["grad x"])


def test_a_second_backward_is_refused_clearly() -> None:
    lstm = lstm_of(torch.float32)
    outputs, _, _ = lstm(torch.randn(TIME, ROWS, 8), torch.zeros(ROWS, 24), torch.zeros(ROWS, 8))
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="run forward again"):
        outputs.sum().backward()


def test_many_rows_and_threads_agree_with_one() -> None:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(run(lstm_of(torch.float32), torch.float32, rows=131))
    torch.set_num_threads(1)
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], atol=1e-4, rtol=1e-4)


def test_huge_and_tiny_gates_stay_finite() -> None:
    lstm = lstm_of(torch.float32, cell_clip=3.0)
    with torch.no_grad():
        lstm.bias.copy_(torch.linspace(-200, 200, lstm.bias.numel()))
    results = run(lstm, torch.float32)
    assert all(torch.isfinite(tensor).all() for tensor in results.values())


def test_rows_in_falling_length_equal_each_row_alone() -> None:
    """Then those that have ended are not computed; outputs there are zeros."""
    for changes in SHAPES:
        lstm = lstm_of(torch.float64, **changes)
        dim, width = lstm.config.dim, lstm.output_dim
        torch.manual_seed(1)
        x = torch.randn(TIME, ROWS, width, dtype=torch.float64)
        c, h = torch.randn(ROWS, dim).double(), torch.randn(ROWS, width).double()
        for lengths in ([7, 6, 3, 1, 0], [5, 5, 2, 2, 2], [0] * 5, [7] * 5):
            with torch.inference_mode():
                outputs, cell, hidden = lstm(x, c, h, torch.tensor(lengths))
                for row, length in enumerate(lengths):
                    one = slice(row, row + 1)
                    assert not outputs[length:, row].any()
                    if length == 0:
                        assert torch.equal(cell[row], c[row])
                        assert torch.equal(hidden[row], h[row])
                        continue
                    alone = lstm(x[:length, one], c[one], h[one])
                    torch.testing.assert_close(outputs[:length, one], alone[0])
                    torch.testing.assert_close(cell[one], alone[1])
                    torch.testing.assert_close(hidden[one], alone[2])
