"""The LSTM layer in Triton, for one direction (`lstm`) or for several at once (`lstm_layer`).

Directions are the batch dimension of every product, so that two directions need as many launches as
one. A time step costs four launches, forward and backward: the recurrent product, the cell, the
projection, and its clip; without a projection it costs two. Nothing waits for the GPU, and no shape
depends on data: the kernels leave rows that have ended unchanged.

Products run in the precision of autocast, if it is enabled. Cells are float32. Memory for backward:
gates, cells, hidden vectors and outputs of all time steps. Without gradients, only the gates of a
few time steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.autograd import allow_one_backward, apply, without_second_derivative
from bilm.kernels.lstm_types import Clips, LayerState, LstmResult, LstmWeights
from bilm.kernels.triton_ops.lstm_steps import Pair, Steps

# Rows x time steps whose gates are in memory at once without gradients: 256 MiB at the published
# size, for two directions in float32.
INFERENCE_ROWS = 2048


def lstm(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None = None,
) -> LstmResult:
    """Run one direction over `inputs` (time, rows, input_dim); see `bilm.kernels.lstm.lstm`."""
    outputs, (cell, hidden) = lstm_layer(
        inputs.unsqueeze(0),
        stack_weights([weights]),
        clips,
        LayerState(state.cell.unsqueeze(0), state.hidden.unsqueeze(0)),
        lengths,
    )
    return LstmResult(outputs[0], LayerState(cell[0], hidden[0]))


def stack_weights(weights: list[LstmWeights]) -> LstmWeights:
    """Return the weights of several directions as `lstm_layer` reads them.

    The matrices are in the precision of products.
    """
    dtype = backends.product_dtype(weights[0].weight)
    projections = [w.projection.to(dtype) for w in weights if w.projection is not None]
    return LstmWeights(
        torch.stack([w.weight.to(dtype) for w in weights]),
        torch.stack([w.bias for w in weights]),
        torch.stack(projections) if projections else None,
    )


def lstm_layer(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None = None,
) -> LstmResult:
    """Run all directions over `inputs` (directions, time, rows, input_dim).

    Weights, state and result have the shapes of `lstm_types`, after a dimension of directions.
    `lengths` (rows,), on the device of the inputs, is the same for all directions. The state of a
    row stays unchanged from its length on, and its output is repeated from there on.
    """
    dtype = backends.product_dtype(weights.weight)
    weight, bias, projection = weights
    lengths = None if lengths is None else lengths.contiguous()
    if projection is not None:
        projection = projection.to(dtype)
    cell, hidden = state.cell.float(), state.hidden.to(dtype)
    tensors = (inputs.to(dtype), weight.to(dtype), bias.float().contiguous(), projection)
    if not torch.is_grad_enabled() or not any(
        tensor is not None and tensor.requires_grad for tensor in (*tensors, cell, hidden)
    ):
        return _infer(tensors[0], LstmWeights(*tensors[1:]), clips, state, lengths)
    outputs, cell, hidden = apply(_LstmLayer, clips, lengths, *tensors, cell, hidden)
    return LstmResult(outputs, LayerState(cell.to(state.cell.dtype), hidden.to(state.hidden.dtype)))


class _LstmLayer(torch.autograd.Function):
    """The layer with gradients.

    The gates (directions, time, rows, 4 * dim) contain activations after forward and gradients
    after backward, so backward can run only once. Cells and outputs have one more time step than
    the inputs: the first is the state before the layer.
    """

    @staticmethod
    def forward(
        ctx: Any,
        clips: Clips,
        lengths: Tensor | None,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        *state: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cell, hidden = state
        directions, time, rows, input_dim = inputs.shape
        gates = torch.bmm(inputs.flatten(1, 2), weight[:, :input_dim])
        gates = gates.view(directions, time, rows, weight.shape[2])
        cells = cell.new_empty(directions, time + 1, *cell.shape[1:])
        outputs = gates.new_empty(directions, time + 1, *hidden.shape[1:])
        cells[:, 0], outputs[:, 0] = cell, hidden
        hiddens = outputs[:, 1:]  # before the projection
        if projection is not None:
            hiddens = gates.new_empty(directions, time, *cell.shape[1:])
        steps = Steps(bias, weight[:, input_dim:], projection, clips, lengths, saves=True)
        for t in range(time):
            steps.forward(t, gates[:, t], _pair(cells, t), hiddens[:, t], _pair(outputs, t))
        ctx.save_for_backward(
            inputs, weight, bias, projection, lengths, gates, cells, hiddens, outputs
        )
        ctx.clips = clips
        ctx.set_materialize_grads(False)
        # The caller may modify the results (`out += x`), but not the tensors saved for backward.
        return outputs[:, 1:].clone(), cells[:, time].clone(), outputs[:, time].clone()

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *results: Tensor | None) -> tuple[Tensor | None, ...]:
        allow_one_backward(ctx, "LSTM")
        inputs, weight, bias, projection, lengths, gates, cells, hiddens, outputs = (
            ctx.saved_tensors
        )
        time, input_dim = inputs.shape[1], inputs.shape[3]
        grads = _initial_gradients(outputs, results[0], results[2])
        grad_cell = cells.new_empty(cells[:, 0].shape)
        grad_cell = grad_cell.zero_() if results[1] is None else grad_cell.copy_(results[1])
        steps = Steps(bias, weight[:, input_dim:], projection, ctx.clips, lengths, saves=True)
        inner = grad_cell.new_empty(grad_cell.shape, dtype=gates.dtype)
        for t in range(time - 1, -1, -1):
            pair = _pair(grads, t)
            if projection is None:
                inner = pair.after
            else:
                steps.unclip(t, pair, outputs[:, t + 1])
                torch.bmm(pair.after, projection.transpose(1, 2), out=inner)
            steps.backward(t, gates[:, t], _pair(cells, t), pair, inner, grad_cell)
        _, _, needs_inputs, needs_weight, needs_bias, needs_projection, _, _ = ctx.needs_input_grad
        flat = gates.flatten(1, 2)  # (directions, time * rows, 4 * dim)
        grad_inputs = grad_weight = grad_bias = grad_projection = None
        if needs_inputs:
            grad_inputs = torch.bmm(flat, weight[:, :input_dim].transpose(1, 2)).view_as(inputs)
        if needs_weight:
            grad_weight = torch.empty_like(weight)
            torch.bmm(_columns(inputs), flat, out=grad_weight[:, :input_dim])
            torch.bmm(_columns(outputs[:, :-1]), flat, out=grad_weight[:, input_dim:])
        if needs_bias:
            grad_bias = flat.sum(dim=1, dtype=bias.dtype)
        if needs_projection:
            grad_projection = torch.bmm(_columns(hiddens), grads[:, 1:].flatten(1, 2))
        own = (grad_inputs, grad_weight, grad_bias, grad_projection, grad_cell, grads[:, 0])
        return None, None, *own


def _pair(tensor: Tensor, t: int) -> Pair:
    return Pair(tensor[:, t], tensor[:, t + 1])


def _columns(tensor: Tensor) -> Tensor:
    """Return a tensor (directions, time, rows, dim) as (directions, dim, time * rows)."""
    return tensor.flatten(1, 2).transpose(1, 2)


def _initial_gradients(outputs: Tensor, result: Tensor | None, last: Tensor | None) -> Tensor:
    """Return the gradients of all outputs, from those of the layer's outputs and last state."""
    grads = torch.empty_like(outputs)
    if result is None:
        grads.zero_()
    else:
        grads[:, 0].zero_()
        grads[:, 1:] = result
    if last is not None:
        grads[:, -1].add_(last)
    return grads


def _infer(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None,
) -> LstmResult:
    """Run the layer without gradients; the cell is updated in place."""
    directions, time, rows, input_dim = inputs.shape
    weight, bias, projection = weights
    cell = state.cell.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(directions, time + 1, *state.hidden.shape[1:])
    outputs[:, 0] = state.hidden
    inner = inputs.new_empty(cell.shape)
    steps = Steps(bias, weight[:, input_dim:], projection, clips, lengths, saves=False)
    chunk = max(1, INFERENCE_ROWS // max(1, rows))  # time steps
    for start in range(0, time, chunk):
        part = inputs[:, start : start + chunk]
        gates = torch.bmm(part.flatten(1, 2), weight[:, :input_dim])
        gates = gates.view(directions, part.shape[1], rows, weight.shape[2])
        for t in range(start, start + part.shape[1]):
            pair = _pair(outputs, t)
            hidden = pair.after if projection is None else inner
            steps.forward(t, gates[:, t - start], Pair(cell, cell), hidden, pair)
    last = outputs[:, time].to(state.hidden.dtype, copy=True)
    return LstmResult(outputs[:, 1:], LayerState(cell.to(state.cell.dtype), last))
