"""Checks of numbers: the original implementation's results, and each kernel's reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bilm.commands.gpu_checks.rows import (
    TOLERANCES,
    Figure,
    NotRun,
    Setting,
    difference_figure,
    greatest_difference,
)
from bilm.kernels import backends
from bilm.kernels.char_cnn import filter_maxima, plain_filter_maxima
from bilm.kernels.dropout import DropoutSeed, dropout
from bilm.kernels.highway import HighwayWeights, highway, plain_highway
from bilm.kernels.lstm import lstm, plain_lstm
from bilm.kernels.lstm_types import Clips, LayerState, LstmWeights
from bilm.kernels.sampled_softmax import Candidates, sampled_loss
from bilm.kernels.sparse_rows import (
    AdamStep,
    Moments,
    Rows,
    adagrad_rows,
    adam_rows,
    plain_adagrad_rows,
    plain_adam_rows,
)
from bilm.model.config import CharacterConfig, LstmConfig, ModelConfig, SoftmaxConfig
from bilm.model.language_model import BiLm, training_objective
from bilm.model.precision import Precision, precision_context
from bilm.parity import compare
from bilm.training.config import OptimizerConfig
from bilm.training.optimizers import build_optimizer

Tensors = dict[str, Tensor]

# In ten steps with a learning rate of 0.2, rounding in a lower precision grows without bound.
TRACE_FILE = "train_trace.npz"

ADAM = AdamStep(num_steps=3, learning_rate=0.1, betas=(0.9, 0.999), epsilon=1e-8)


def parity(setting: Setting, precision: Precision) -> Figure:
    """Compare with the original implementation, or without its files with float64 on the CPU."""
    setting.require(precision)
    limit = TOLERANCES[precision]
    if setting.golden is None:
        expected = _train_steps(torch.device("cpu"), torch.float64, "float32")
        actual = _train_steps(setting.device, torch.float32, precision)
        differences = {name: greatest_difference(actual[name], expected[name]) for name in expected}
        return difference_figure(differences, limit, "; reference: float64 on the CPU")
    files = [path.name for path in sorted(setting.golden.glob("*.npz"))]
    if precision != "float32":
        files = [file for file in files if file != TRACE_FILE]
    if not files:
        raise NotRun(f"{setting.golden} has no .npz files")
    differences = {
        f"{file}: {name}": difference
        for file in files
        for name, difference in compare(
            setting.golden / file, str(setting.device), precision
        ).items()
    }
    return difference_figure(differences, limit, f"; {len(files)} golden files")


def _train_steps(device: torch.device, dtype: torch.dtype, precision: Precision) -> Tensors:
    """Train a tiny model for three steps; return the losses, the state and the weights."""
    torch.manual_seed(0)
    config = ModelConfig(
        characters=CharacterConfig(embedding_dim=4, filters=((1, 8), (3, 8)), num_highway=1),
        lstm=LstmConfig(dim=32, projection_dim=16, num_layers=2),
        softmax=SoftmaxConfig(kind="full"),
        dropout=0.1,
    )
    model = BiLm(config, 50).to(device, dtype).train()
    model.training_precision = precision
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.02), model.parameters())
    words = torch.randint(0, 255, (20, 50)).to(device)
    inverse, targets = (torch.randint(0, n, (2, 4, 6)).to(device) for n in (20, 50))
    state, losses = model.zero_state(4), []
    for step in range(3):
        optimizer.zero_grad()
        sums, state = model(words, inverse, targets, state, dropout_seed=DropoutSeed(1, step))
        with precision_context(device, "tf32" if precision == "tf32" else "float32"):
            training_objective(sums, 4).backward()
        optimizer.step()
        state = state.detach()
        losses.append(sums.detach())
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return {"losses": torch.stack(losses), "cell": state.cell, "hidden": state.hidden, **weights}


def kernel(setting: Setting, name: str) -> Figure:
    """Compare an operation and its gradients on the device with its reference in float64."""
    case, make_inputs = KERNELS[name]
    torch.manual_seed(0)
    inputs = make_inputs(*((4, 5, 8) if setting.is_quick else (32, 20, 128)))
    with precision_context(setting.device, "float32"):
        actual = _results(case, inputs, setting.device, is_reference=False)
    expected = _results(case, inputs, torch.device("cpu"), is_reference=True)
    differences = {key: greatest_difference(actual[key], expected[key]) for key in expected}
    backend = backends.choose(torch.zeros(1, device=setting.device))
    figure = difference_figure(differences, TOLERANCES["float32"], f"; {backend}")
    if setting.device.type == "cuda" and backend != "triton":
        return Figure(figure.text, f"{figure.limit}, triton", has_passed=False)
    return figure


Case = Callable[[Tensors, bool], Sequence[Tensor]]


def _results(case: Case, inputs: Tensors, device: torch.device, is_reference: bool) -> Tensors:
    """Return the outputs of an operation, and the gradients of all inputs that it returns any."""
    dtype = torch.float64 if is_reference else torch.float32
    own = {
        name: x.to(device, dtype, copy=True) if x.is_floating_point() else x.to(device)
        for name, x in inputs.items()
    }
    leaves = {name: x.requires_grad_() for name, x in own.items() if x.is_floating_point()}
    outputs = case(own, is_reference)
    results = {f"output {i}": output for i, output in enumerate(outputs)}
    if all(output.requires_grad for output in outputs):
        # Factors that differ from element to element, the same on all devices.
        factors = [torch.arange(x.numel(), dtype=torch.float64).cos() for x in outputs]
        products = [
            (x * f.to(device, dtype).view_as(x)).sum()
            for x, f in zip(outputs, factors, strict=True)
        ]
        objective = torch.stack(products).sum()
        grads = torch.autograd.grad(objective, list(leaves.values()), allow_unused=True)
        for name, grad in zip(leaves, grads, strict=True):
            if grad is not None:
                results[f"gradient of {name}"] = grad.to_dense() if grad.is_sparse else grad
    return results


def _lstm(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    weights = LstmWeights(x["weight"], x["bias"], x["projection"])
    run = plain_lstm if is_reference else lstm
    outputs, (cell, hidden) = run(
        x["inputs"], weights, Clips(0.5, 0.3), LayerState(x["cell"], x["hidden"])
    )
    return outputs, cell, hidden


def _lstm_inputs(rows: int, time: int, dim: int) -> Tensors:
    return {
        "inputs": torch.randn(time, rows, dim),
        "weight": torch.randn(2 * dim, 16 * dim) / dim**0.5,
        "bias": torch.randn(16 * dim) / 4,
        "projection": torch.randn(4 * dim, dim) / (4 * dim) ** 0.5,
        "cell": torch.randn(rows, 4 * dim) / 4,
        "hidden": torch.randn(rows, dim) / 4,
    }


def _highway(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    weights = HighwayWeights(*(x[name] for name in HighwayWeights._fields))
    return [(plain_highway if is_reference else highway)(x["x"], weights)]


def _highway_inputs(rows: int, time: int, dim: int) -> Tensors:
    shapes = {
        name: (dim, dim) if name.endswith("weight") else (dim,) for name in HighwayWeights._fields
    }
    weights = {name: torch.randn(shape) / dim**0.5 for name, shape in shapes.items()}
    return {"x": torch.randn(rows * time, dim), **weights}


def _char_cnn(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    filters = [x["narrow"], x["wide"]]
    maxima = plain_filter_maxima if is_reference else filter_maxima
    return [maxima(x["ids"], x["embedding"], filters)]


def _char_cnn_inputs(rows: int, time: int, dim: int) -> Tensors:
    return {
        "ids": torch.randint(0, 261, (rows * time, 50)),
        "embedding": torch.randn(261, 16),
        "narrow": torch.randn(dim, 16, 1) / 4,
        "wide": torch.randn(2 * dim, 16, 7) / 10,
    }


def _softmax(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    if not is_reference:
        targets = Candidates(x["targets"], x["target_counts"])
        sampled = Candidates(x["sampled"], x["sampled_counts"])
        return [sampled_loss(x["hidden"], x["weight"], x["bias"], targets, sampled)]
    hidden, weight, bias = x["hidden"][0], x["weight"], x["bias"][:, 0]
    true_ids, ids = x["targets"][0], x["sampled"][0]
    true_counts, counts = (x[name][0].detach() for name in ("target_counts", "sampled_counts"))
    true = (hidden * weight[true_ids]).sum(1) + bias[true_ids] - true_counts
    others = hidden @ weight[ids].t() + bias[ids] - counts
    others = others.masked_fill(true_ids.unsqueeze(1) == ids, -torch.inf)
    return [(torch.cat([true.unsqueeze(1), others], 1).logsumexp(1) - true).unsqueeze(0)]


def _softmax_inputs(rows: int, time: int, dim: int) -> Tensors:
    words, negatives = 40 * time, 10 * time
    return {
        "hidden": torch.randn(1, rows * time, dim),
        "weight": torch.randn(words, dim) / dim**0.5,
        "bias": torch.randn(words, 1) / 4,
        "targets": torch.randint(0, words, (1, rows * time)),
        "target_counts": torch.randn(1, rows * time),
        "sampled": torch.randperm(words)[None, :negatives],
        "sampled_counts": torch.randn(1, negatives),
    }


def _row_updates(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    adagrad = plain_adagrad_rows if is_reference else adagrad_rows
    adam = plain_adam_rows if is_reference else adam_rows
    with torch.no_grad():
        table, sums, other, mean, square, values = (
            x[name].detach() for name in ("table", "sums", "other", "mean", "square", "values")
        )
        adagrad(table, sums, Rows(x["ids"], values), 0.1, 0.0)
        adam(other, Moments(mean, square), Rows(x["ids"], values), ADAM)
    return table, sums, other, mean, square


def _row_updates_inputs(rows: int, time: int, dim: int) -> Tensors:
    shape = (rows * time, dim)
    tables = {name: torch.randn(shape) for name in ("table", "other", "mean")}
    squares = {name: torch.rand(shape) + 0.5 for name in ("sums", "square")}
    ids = torch.randperm(rows * time)[: rows * time // 2].sort().values
    return {**tables, **squares, "ids": ids, "values": torch.randn(len(ids), dim)}


def _dropout(x: Tensors, is_reference: bool) -> Sequence[Tensor]:
    return [dropout(x["x"], 0.3, DropoutSeed(5, 7, 11), layer=1, direction=0)]


def _dropout_inputs(rows: int, time: int, dim: int) -> Tensors:
    return {"x": torch.randn(time, rows, dim)}


KERNELS: dict[str, tuple[Case, Callable[[int, int, int], Tensors]]] = {
    "LSTM": (_lstm, _lstm_inputs),
    "highway": (_highway, _highway_inputs),
    "character CNN": (_char_cnn, _char_cnn_inputs),
    "sampled softmax": (_softmax, _softmax_inputs),
    "row updates": (_row_updates, _row_updates_inputs),
    "dropout": (_dropout, _dropout_inputs),
}
