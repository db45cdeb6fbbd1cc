"""The LSTM layer in C, with gradients (`Lstm`) and without (`infer`).

It is fast because one product computes the inputs' part of the gates of all time steps; the only
product per time step is the recurrent one, added in place; bias, gates, clip and cell are computed
in one pass over memory. Backward turns the gates into their gradients in place and computes the
gradient of each weight as *one* product over all time steps, after the loop; there, the bias is the
last row of its weight.

Memory for backward: gates, cells, hidden vectors and outputs of all time steps. Without gradients,
only the gates of a few time steps.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bilm.kernels.autograd import allow_one_backward, without_second_derivative
from bilm.kernels.c_library import Floats, Kernel, Real, Size
from bilm.kernels.lstm_types import FORGET_BIAS, Clips, LayerState, LstmResult, LstmWeights

# Rows x time steps whose gates are in memory at once without gradients: enough for an efficient
# product, few enough for the cache.
INFERENCE_ROWS = 512

_cell_forward = Kernel(
    "cell_forward",
    rows=Size,
    dim=Size,
    gates=Floats,
    bias=Floats,
    cell=Floats,
    next_cell=Floats,
    hidden=Floats,
    forget_bias=Real,
    clip=Real,
)
_cell_backward = Kernel(
    "cell_backward",
    rows=Size,
    dim=Size,
    gates=Floats,
    cell=Floats,
    next_cell=Floats,
    grad_hidden=Floats,
    grad_cell=Floats,
    clip=Real,
)


class Lstm(torch.autograd.Function):
    """The layer in C, for rows of full length.

    The gates (time, rows, 4 * dim) contain activations after forward and gradients after backward,
    so backward can run only once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        clips: Clips,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        *state: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cell, hidden = state
        bias = bias.contiguous()
        time, rows, input_dim = inputs.shape
        dim, width = weight.shape[1] // 4, hidden.shape[1]
        gates = weight.new_empty(time, rows, 4 * dim)
        _input_product(inputs, weight, gates)
        cells = gates.new_empty(time + 1, rows, dim)
        cells[0] = cell
        hiddens = gates.new_empty(time, rows, dim)  # before the projection
        outputs = hiddens if projection is None else gates.new_empty(time, rows, width)
        recurrent, previous = weight[input_dim:], hidden.contiguous()
        steps = zip(gates, cells[:-1], cells[1:], hiddens, outputs, strict=True)
        for z, before, after, inner, output in steps:
            z.addmm_(previous, recurrent)
            _cell_forward(
                rows=rows,
                dim=dim,
                gates=z,
                bias=bias,
                cell=before,
                next_cell=after,
                hidden=inner,
                forget_bias=FORGET_BIAS,
                clip=clips.cell,
            )
            previous = _project(inner, projection, clips.projection, output)
        kept = outputs.abs() < clips.projection if projection is not None else None
        joined = _joined(inputs, hidden, outputs)
        ctx.save_for_backward(gates, weight, projection, cells, hiddens, joined, kept)
        ctx.cell_clip = clips.cell
        # The caller may modify the outputs (`out += x`), but not the tensors saved for backward.
        last = outputs[time - 1].clone()
        return outputs.clone() if projection is None else outputs, cells[time].clone(), last

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        allow_one_backward(ctx, "LSTM")
        gates, weight, projection, cells, hiddens, joined, kept = ctx.saved_tensors
        time, rows, dim = hiddens.shape
        grad_outputs = grads[0].clone(memory_format=torch.contiguous_format)
        grad_outputs[time - 1] += grads[2]
        grad_cell = grads[1].clone(memory_format=torch.contiguous_format)
        grad_hidden = torch.zeros_like(grad_outputs[0])  # of the first state
        input_dim = weight.shape[0] - grad_outputs.shape[2]
        recurrent = weight[input_dim:].t()
        if kept is not None:
            kept = kept.to(gates.dtype)
        inner = gates.new_empty(rows, dim)
        for t in range(time - 1, -1, -1):
            grad_output, z = grad_outputs[t], gates[t]
            if projection is not None:
                grad_output *= kept[t]  # no gradient where the projection was clipped
                torch.mm(grad_output, projection.t(), out=inner)
            _cell_backward(
                rows=rows,
                dim=dim,
                gates=z,
                cell=cells[t],
                next_cell=cells[t + 1],
                grad_hidden=grad_output if projection is None else inner,
                grad_cell=grad_cell,
                clip=ctx.cell_clip,
            )
            (grad_outputs[t - 1] if t else grad_hidden).addmm_(z, recurrent)
        _, needs_inputs, *needs_weights, needs_projection, _, _ = ctx.needs_input_grad
        flat = gates.flatten(0, 1)  # (time * rows, 4 * dim)
        grad_inputs = grad_weight = grad_bias = grad_projection = None
        if needs_inputs:
            grad_inputs = torch.mm(flat, weight[:input_dim].t()).view(time, rows, input_dim)
        if any(needs_weights):
            both = torch.mm(joined.flatten(0, 1).t(), flat)
            grad_weight, grad_bias = both[:-1], both[-1]
        if needs_projection:
            grad_projection = torch.mm(hiddens.flatten(0, 1).t(), grad_outputs.flatten(0, 1))
        return None, grad_inputs, grad_weight, grad_bias, grad_projection, grad_cell, grad_hidden


def _input_product(inputs: Tensor, weight: Tensor, gates: Tensor) -> None:
    """Write the inputs' part of the gates (time, rows, 4 * dim): one product for all time steps."""
    time, _, dim = inputs.shape
    torch.mm(inputs.flatten(0, 1), weight[:dim], out=gates[:time].flatten(0, 1))


def _project(hidden: Tensor, projection: Tensor | None, clip: float, output: Tensor) -> Tensor:
    """Write the clipped projection of `hidden` to `output`; without one, `output` is `hidden`."""
    if projection is not None:
        torch.mm(hidden, projection, out=output)
        if clip != math.inf:
            output.clamp_(-clip, clip)
    return output


def _joined(inputs: Tensor, hidden: Tensor, outputs: Tensor) -> Tensor:
    """Concatenate the input, the recurrent vector and 1: (time, rows, input_dim + width + 1).

    Backward needs one column for each row of the weight, and one for the bias.
    """
    time, rows, input_dim = inputs.shape
    joined = outputs.new_empty(time, rows, input_dim + hidden.shape[1] + 1)
    joined[:, :, :input_dim] = inputs
    joined[0, :, input_dim:-1] = hidden
    joined[1:, :, input_dim:-1] = outputs[:-1]
    joined[:, :, -1] = 1.0
    return joined


def _running_rows(lengths: Tensor | None, rows: int, time: int) -> list[int]:
    """Return the number of rows, from the first on, that have not ended at each time step."""
    if lengths is None:
        return [rows] * time
    counts: list[int] = (lengths > torch.arange(time).unsqueeze(1)).sum(dim=1).tolist()
    return counts


def infer(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None,
) -> LstmResult:
    """Run the layer in C without gradients.

    Nothing is computed for a row from its length on: its outputs are zeros there.
    """
    time, rows, input_dim = inputs.shape
    weight, bias, projection = weights._replace(bias=weights.bias.contiguous())
    dim, recurrent = weight.shape[1] // 4, weight[input_dim:]
    steps = max(1, min(time, INFERENCE_ROWS // max(1, rows)))
    gates = weight.new_empty(steps, rows, 4 * dim)  # of a few time steps
    cell = state.cell.contiguous().clone()
    next_cell = torch.empty_like(cell)
    hidden = state.hidden.clone()  # receives the last output of each row when the row ends
    outputs = weight.new_empty(time, rows, hidden.shape[1])
    inner = weight.new_empty(rows, dim)
    last, running = hidden, rows
    for t, count in enumerate(_running_rows(lengths, rows, time)):
        if count < running:  # some rows have just ended, and keep their state
            ended = slice(count, running)
            if t:
                hidden[ended] = outputs[t - 1, ended]
            next_cell[ended] = cell[ended]
            outputs[t:, ended] = 0.0
            running = count
        if t % steps == 0:
            _input_product(inputs[t : t + steps], weight, gates)
        z, output = gates[t % steps, :count], outputs[t, :count]
        z.addmm_(last[:count], recurrent)
        unprojected = output if projection is None else inner[:count]
        _cell_forward(
            rows=count,
            dim=dim,
            gates=z,
            bias=bias,
            cell=cell,
            next_cell=next_cell,
            hidden=unprojected,
            forget_bias=FORGET_BIAS,
            clip=clips.cell,
        )
        last = _project(unprojected, projection, clips.projection, output)
        cell, next_cell = next_cell, cell
    hidden[: len(last)] = last
    return LstmResult(outputs, LayerState(cell, hidden))
