"""The LSTM layer of two directions compared with plain PyTorch: results and all gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bilm.kernels.lstm import plain_lstm
from bilm.kernels.lstm_types import Clips, LayerState, LstmResult, LstmWeights
from bilm.kernels.triton_ops import lstm as triton_lstm
from tests.bilm.kernels.triton_ops.comparing import (
    DEVICE,
    DTYPES,
    assert_near,
    gradient,
    leaf,
    random_tensor,
)

TIME, ROWS = 4, 5
CLIPS = Clips(cell=0.6, projection=0.4)
Run = Callable[[Tensor, LstmWeights, Clips, LayerState, Tensor | None], LstmResult]


@dataclass(frozen=True)
class Sizes:
    input_dim: int
    dim: int
    output_dim: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "inputs": (2, TIME, ROWS, self.input_dim),
            "weight": (2, self.input_dim + self.output_dim, 4 * self.dim),
            "bias": (2, 4 * self.dim),
            "cell": (2, ROWS, self.dim),
            "hidden": (2, ROWS, self.output_dim),
        }
        if self.dim != self.output_dim:
            shapes["projection"] = (2, self.dim, self.output_dim)
        return shapes


PROJECTED, PLAIN = Sizes(7, 300, 11), Sizes(9, 37, 37)  # 1500 and 185 elements per step


def arguments(sizes: Sizes, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(0)
    scales = {"weight": 0.25, "projection": 0.1}
    return {
        name: random_tensor(*shape, dtype=dtype, scale=scales.get(name, 1.0))
        for name, shape in sizes.shapes.items()
    }


def call(run: Run, tensors: dict[str, Tensor], clips: Clips, lengths: Tensor | None) -> LstmResult:
    weights = LstmWeights(tensors["weight"], tensors["bias"], tensors.get("projection"))
    state = LayerState(tensors["cell"], tensors["hidden"])
    return run(tensors["inputs"], weights, clips, state, lengths)


def plain_layer(
    inputs: Tensor, weights: LstmWeights, clips: Clips, state: LayerState, lengths: Tensor | None
) -> LstmResult:
    results = []
    for d in range(len(inputs)):
        own = LstmWeights(*(None if w is None else w[d] for w in weights))
        own_state = LayerState(state.cell[d], state.hidden[d])
        results.append(plain_lstm(inputs[d], own, clips, own_state, lengths))
    return LstmResult(
        torch.stack([r.outputs for r in results]),
        LayerState(
            torch.stack([r.state.cell for r in results]),
            torch.stack([r.state.hidden for r in results]),
        ),
    )


def gradients(
    run: Run, tensors: dict[str, Tensor], clips: Clips, lengths: Tensor | None
) -> dict[str, Tensor]:
    """Return the results and the gradients of a weighted sum of all meaningful results."""
    outputs, state = call(run, tensors, clips, lengths)
    torch.manual_seed(1)
    weights = [torch.randn(r.shape, dtype=torch.float64).to(DEVICE) for r in (outputs, *state)]
    if lengths is not None:
        is_running = torch.arange(TIME, device=DEVICE).unsqueeze(1) < lengths
        weights[0] *= is_running.unsqueeze(2)
        outputs = outputs * is_running.unsqueeze(2)
    results = (outputs, *state)
    torch.stack([(r * w).sum() for r, w in zip(results, weights, strict=True)]).sum().backward()
    found = dict(zip(("outputs", "next cell", "next hidden"), results, strict=True))
    return found | {f"grad {name}": gradient(tensor) for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [PROJECTED, PLAIN], ids=["projected", "plain"])
@pytest.mark.parametrize("lengths", [None, [4, 3, 1, 1, 0]], ids=["full", "lengths"])
def test_training_matches_float64(
    sizes: Sizes, lengths: list[int] | None, dtype: torch.dtype
) -> None:
    values = arguments(sizes, dtype)
    own_lengths = None if lengths is None else torch.tensor(lengths, device=DEVICE)
    reference = {name: leaf(value, torch.float64) for name, value in values.items()}
    # A value near a bound may be clipped in bfloat16 and not in float64, or the other way round.
    clips = CLIPS if dtype == torch.float32 else Clips(50.0, 50.0)
    expected = gradients(plain_layer, reference, clips, own_lengths)
    tensors = {
        name: leaf(value, torch.float32 if name in ("bias", "cell", "hidden") else None)
        for name, value in values.items()
    }
    actual = gradients(triton_lstm.lstm_layer, tensors, clips, own_lengths)
    bounds = {"next cell": CLIPS.cell, "outputs": CLIPS.projection}
    for name, bound in bounds.items():
        share = (expected[name].abs() == bound).double().mean()
        is_clipped = clips is CLIPS and (name == "next cell" or sizes is PROJECTED)
        assert 0.05 < share < 0.95 if is_clipped else share == 0
    assert actual["next cell"].dtype == actual["next hidden"].dtype == torch.float32
    assert actual["outputs"].dtype == dtype
    for name, tensor in expected.items():
        assert_near(actual[name], tensor, dtype, f"lstm {name}")


@pytest.mark.parametrize("sizes", [PROJECTED, PLAIN], ids=["projected", "plain"])
@pytest.mark.parametrize("lengths", [None, [4, 3, 1, 1, 0]], ids=["full", "lengths"])
def test_inference_equals_training(
    sizes: Sizes, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_lstm, "INFERENCE_ROWS", 3 * ROWS)  # 4 steps in two parts
    values = arguments(sizes, torch.float32)
    own_lengths = None if lengths is None else torch.tensor(lengths, device=DEVICE)
    before = {name: value.clone() for name, value in values.items()}
    with torch.inference_mode():
        inferred = call(triton_lstm.lstm_layer, values, CLIPS, own_lengths)
    tensors = {name: leaf(value) for name, value in values.items()}
    trained = call(triton_lstm.lstm_layer, tensors, CLIPS, own_lengths)
    for actual, expected in zip(
        (inferred.outputs, *inferred.state), (trained.outputs, *trained.state), strict=True
    ):
        assert_near(actual, expected, torch.float32, "lstm inference")
    for name, value in values.items():
        assert torch.equal(before[name], value)


def test_one_direction_and_no_clips() -> None:
    values = arguments(PROJECTED, torch.float32)
    one = {name: value[0] for name, value in values.items()}
    reference = {name: value.double() for name, value in one.items()}
    expected = call(plain_lstm, reference, Clips(), None)
    with torch.no_grad():
        actual = call(triton_lstm.lstm, one, Clips(), None)
    assert_near(actual.outputs, expected.outputs, torch.float32, "lstm outputs")
    assert_near(actual.state.cell, expected.state.cell, torch.float32, "lstm cell")


@pytest.mark.parametrize(("time", "rows"), [(0, 3), (3, 0)])
def test_accepts_empty_inputs(time: int, rows: int) -> None:
    values = arguments(PLAIN, torch.float32)
    values["inputs"] = values["inputs"][:, :time, :rows]
    values["cell"], values["hidden"] = values["cell"][:, :rows], values["hidden"][:, :rows]
    tensors = {name: leaf(value) for name, value in values.items()}
    outputs, state = call(triton_lstm.lstm_layer, tensors, CLIPS, None)
    (outputs.sum() + state.cell.sum() + state.hidden.sum()).backward()
    assert outputs.shape == (2, time, rows, PLAIN.output_dim)
    assert torch.equal(gradient(tensors["cell"]), torch.ones_like(state.cell))


@pytest.mark.parametrize("sizes", [PROJECTED, PLAIN], ids=["projected", "plain"])
def test_nan_stays_in_its_row(sizes: Sizes) -> None:
    values = arguments(sizes, torch.float32)
    expected = call(triton_lstm.lstm_layer, values, CLIPS, None).outputs
    values["inputs"][0, 1, 2, 0] = math.nan
    values["inputs"][1, 2, 3, 0] = math.inf
    outputs = call(triton_lstm.lstm_layer, values, CLIPS, None).outputs
    plain = call(plain_layer, values, CLIPS, None).outputs
    assert torch.equal(outputs.isnan(), plain.isnan())
    assert outputs[0, 1:, 2].isnan().all()
    assert torch.equal(outputs[0, :, :2], expected[0, :, :2])


def test_saturated_gates_are_finite() -> None:
    values = arguments(PLAIN, torch.float32)
    values["bias"] = torch.linspace(-200, 200, 8 * PLAIN.dim, device=DEVICE).view(2, -1)
    tensors = {name: leaf(value) for name, value in values.items()}
    results = gradients(triton_lstm.lstm_layer, tensors, Clips(3.0, 3.0), None)
    assert all(torch.isfinite(tensor).all() for tensor in results.values())


def test_rejects_second_backward() -> None:
    tensors = {name: leaf(value) for name, value in arguments(PLAIN, torch.float32).items()}
    outputs, _ = call(triton_lstm.lstm_layer, tensors, CLIPS, None)
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="run forward again"):
        outputs.sum().backward()


def test_autocast_lowers_the_products_only() -> None:
    values = arguments(PROJECTED, torch.float32)
    tensors = {name: leaf(value) for name, value in values.items()}
    reference = {name: value.double() for name, value in values.items()}
    expected = call(plain_layer, reference, CLIPS, None)
    with torch.autocast(DEVICE, torch.bfloat16):
        outputs, state = call(triton_lstm.lstm_layer, tensors, CLIPS, None)
        assert outputs.dtype == torch.bfloat16
        assert state.cell.dtype == state.hidden.dtype == torch.float32
    outputs.float().sum().backward()
    assert all(gradient(tensor).dtype == torch.float32 for tensor in tensors.values())
    assert_near(outputs, expected.outputs, torch.bfloat16, "lstm autocast outputs")
    assert_near(state.cell, expected.state.cell, torch.bfloat16, "lstm autocast cell")
