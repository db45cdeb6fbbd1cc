"""A call of every Triton operation, on tensors of any device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilm.kernels.dropout import Mask
from bilm.kernels.highway import HighwayWeights
from bilm.kernels.lstm_types import Clips, LayerState, LstmWeights
from bilm.kernels.sparse_rows import AdamStep, Moments, Rows
from bilm.kernels.triton_ops import (
    char_cnn,
    dropout,
    highway,
    lstm,
    lstm_steps,
    sampled_softmax,
    sparse_rows,
)

MODULES = (char_cnn, dropout, highway, lstm_steps, sampled_softmax, sparse_rows)  # with launches
TIME, ROWS, WIDTH = 20, 16, 64
Call = Callable[[], Tensor | None]


def layer_call(options: dict[str, object], dim: int, lengths: Tensor | None = None) -> Call:
    """Return a call of the LSTM layer; without a projection if `dim` is WIDTH."""
    device = options["device"]
    inputs, projection = torch.zeros(2, TIME, ROWS, WIDTH, **options), None
    if dim != WIDTH:
        projection = torch.zeros(2, dim, WIDTH, **options).requires_grad_()
    weights = LstmWeights(
        torch.zeros(2, 2 * WIDTH, 4 * dim, **options).requires_grad_(),
        torch.zeros(2, 4 * dim, device=device).requires_grad_(),
        projection,
    )
    # In training, the carried state has no gradient.
    state = LayerState(
        torch.zeros(2, ROWS, dim, device=device), torch.zeros(2, ROWS, WIDTH, device=device)
    )
    inputs.requires_grad_()
    return lambda: lstm.lstm_layer(inputs, weights, Clips(3.0, 3.0), state, lengths).outputs


def highway_call(options: dict[str, object]) -> Call:
    x = torch.zeros(ROWS, WIDTH, **options).requires_grad_()
    square = torch.zeros(WIDTH, WIDTH, **options).requires_grad_()
    vector = torch.zeros(WIDTH, device=options["device"]).requires_grad_()
    return lambda: highway.highway(x, HighwayWeights(square, vector, square, vector))


def char_cnn_call(options: dict[str, object]) -> Call:
    embedding = torch.zeros(261, 16, **options).requires_grad_()
    ids = torch.zeros(ROWS, 50, dtype=torch.int16, device=options["device"])
    filters = [torch.zeros(count, 16, width, **options) for width, count in ((1, 32), (7, 1024))]
    bias = torch.zeros(1056, device=options["device"])
    return lambda: char_cnn.filter_maxima(ids, embedding, filters, bias, "relu")


def softmax_call(options: dict[str, object]) -> Call:
    logits, hits = torch.zeros(ROWS, 8192, **options), _ids(options)
    bias, true_logit = (torch.zeros(n, device=options["device"]) for n in (8192, ROWS))
    return lambda: sampled_softmax.to_probabilities(logits, bias, true_logit, hits)[0]


def add_rows_call(options: dict[str, object]) -> Call:
    (table, rows), scale = _table(options), torch.zeros(ROWS, device=options["device"])
    return lambda: sampled_softmax.add_rows(table, rows.ids, rows.values, scale)


def adagrad_call(options: dict[str, object]) -> Call:
    table, rows = _table(options)
    return lambda: sparse_rows.adagrad_rows(table, table, rows, 0.1, 0.0)


def adam_call(options: dict[str, object]) -> Call:
    table, rows = _table(options)
    step = AdamStep(1, 0.1, (0.9, 0.999), 1e-8)
    return lambda: sparse_rows.adam_rows(table, Moments(table, table), rows, step)


def dropout_call(options: dict[str, object]) -> Call:
    x = torch.zeros(TIME, ROWS, WIDTH, **options).requires_grad_()
    return lambda: dropout.apply_mask(x, Mask(1, 2, 3, 4, 5, 2.0))


def _ids(options: dict[str, object]) -> Tensor:
    return torch.zeros(ROWS, dtype=torch.int64, device=options["device"])


def _table(options: dict[str, object]) -> tuple[Tensor, Rows]:
    table = torch.zeros(32, 512, device=options["device"])
    return table, Rows(_ids(options), torch.zeros(ROWS, 512, **options))


CALLS = {
    "highway": highway_call,
    "char_cnn": char_cnn_call,
    "to_probabilities": softmax_call,
    "add_rows": add_rows_call,
    "adagrad_rows": adagrad_call,
    "adam_rows": adam_call,
    "dropout": dropout_call,
}
