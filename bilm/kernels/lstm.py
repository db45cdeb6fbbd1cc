"""The LSTM layer with a fused cell, forward and backward, and without gradients.

What makes it fast: one product for the inputs of all time steps; one recurrent product a step,
added in place; bias, gates, clip and cell in one pass of C; in backward the gates become their
gradients in place, and each weight's gradient is *one* product over all time steps, after the loop;
the bias is a last row of its weight there.

Memory for backward: gates, cells, hidden vectors and outputs of all time steps. Without gradients
the gates of a few time steps are all.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bilm.kernels import c_library as native

INFERENCE_ROWS = 512  # whose gates are held at once: enough for a full product, few for the cache


class FusedLstm(torch.autograd.Function):
    """One layer in one direction, for rows of full length; see `bilm/projected_lstm.py`.

    The gates (time, rows, 4 * dim) hold activations after forward and gradients after backward,
    which therefore can run only once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        cell: Tensor,
        hidden: Tensor,
        cell_clip: float,
        projection_clip: float,
        forget_bias: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        time, rows, input_dim = inputs.shape
        dim, width = weight.shape[1] // 4, hidden.shape[1]
        gates = weight.new_empty(time, rows, 4 * dim)
        input_product(inputs, weight, gates)
        recurrent = weight[input_dim:]
        cells = gates.new_empty(time + 1, rows, dim)
        cells[0] = cell
        hiddens = gates.new_empty(time, rows, dim)  # before the projection
        # Input, recurrent vector and a one side by side, as backward wants them: a column for each
        # row of the weight, and one for the bias.
        joined = gates.new_empty(time, rows, input_dim + width + 1)
        joined[:, :, :input_dim] = inputs
        joined[0, :, input_dim:-1] = hidden
        joined[:, :, -1] = 1.0
        outputs = hiddens if projection is None else gates.new_empty(time, rows, width)
        previous = hidden.contiguous()
        for z, before, after, inner, output in zip(
            gates, cells[:-1], cells[1:], hiddens, outputs, strict=True
        ):
            z.addmm_(previous, recurrent)
            native.call(
                *("cell_forward", z.dtype, rows, dim, z, bias, before, after, inner),
                *(forget_bias, cell_clip),
            )
            if projection is not None:
                torch.mm(inner, projection, out=output)
                if projection_clip != math.inf:
                    output.clamp_(-projection_clip, projection_clip)
            previous = output
        joined[1:, :, input_dim:-1] = outputs[:-1]
        kept = outputs.abs() < projection_clip if projection is not None else None
        ctx.save_for_backward(gates, weight, projection, cells, hiddens, joined, kept)
        ctx.cell_clip = cell_clip
        ctx.is_used_up = False
        last = outputs[time - 1].clone()
        # A caller may change what it gets (`out += x`), but not what backward needs.
        return outputs.clone() if projection is None else outputs, cells[time].clone(), last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_used_up:
            raise RuntimeError(
                "this LSTM's backward has run already, and has used up what it needs; run forward "
                "again, or set BILM_NATIVE=0 for a path that can go back twice"
            )
        ctx.is_used_up = True
        gates, weight, projection, cells, hiddens, joined, kept = ctx.saved_tensors
        time, rows, dim = hiddens.shape
        grad_outputs = grads[0].clone(memory_format=torch.contiguous_format)
        grad_outputs[time - 1] += grads[2]
        grad_cell = grads[1].clone(memory_format=torch.contiguous_format)
        input_dim = weight.shape[0] - grad_outputs.shape[2]
        recurrent = weight[input_dim:].t()
        if kept is not None:
            kept = kept.to(gates.dtype)
        inner = gates.new_empty(rows, dim)
        grad_hidden = grad_outputs.new_zeros(rows, grad_outputs.shape[2])  # of the first state
        for t in range(time - 1, -1, -1):
            grad_output, z = grad_outputs[t], gates[t]
            if projection is not None:
                grad_output *= kept[t]  # nothing passes where the projection was clipped
                torch.mm(grad_output, projection.t(), out=inner)
            else:
                inner = grad_output
            native.call(
                *("cell_backward", z.dtype, rows, dim, z, cells[t], cells[t + 1]),
                *(inner, grad_cell, ctx.cell_clip),
            )
            (grad_outputs[t - 1] if t else grad_hidden).addmm_(z, recurrent)
        flat = gates.flatten(0, 1)  # (time * rows, 4 * dim)
        needs = ctx.needs_input_grad
        grad_inputs = grad_weight = grad_bias = grad_projection = None
        if needs[0]:
            grad_inputs = torch.mm(flat, weight[:input_dim].t()).view(time, rows, input_dim)
        if needs[1] or needs[2]:
            both = torch.mm(joined.flatten(0, 1).t(), flat)
            grad_weight, grad_bias = both[:-1], both[-1]
        if projection is not None and needs[3]:
            grad_projection = torch.mm(hiddens.flatten(0, 1).t(), grad_outputs.flatten(0, 1))
        grads_of_inputs = (grad_inputs, grad_weight, grad_bias, grad_projection)
        return *grads_of_inputs, grad_cell, grad_hidden, None, None, None


def input_product(inputs: Tensor, weight: Tensor, gates: Tensor) -> None:
    """The inputs' part of the gates (time, rows, 4 * dim): one product for all time steps."""
    time, _, dim = inputs.shape
    torch.mm(inputs.flatten(0, 1), weight[:dim], out=gates[:time].flatten(0, 1))


def infer(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Tensor | None,
    cell: Tensor,
    hidden: Tensor,
    cell_clip: float,
    projection_clip: float,
    forget_bias: float,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same without gradients; a row's state stays from its length on.

    Where rows come in falling length, nothing is computed for those that have ended: their outputs
    are zeros.
    """
    time, rows, input_dim = inputs.shape
    dim, recurrent = weight.shape[1] // 4, weight[input_dim:]
    steps = max(1, min(time, INFERENCE_ROWS // max(1, rows)))
    gates = weight.new_empty(steps, rows, 4 * dim)  # of a few steps at a time
    counts = [rows] * time  # rows to compute at each step: the first ones
    is_sorted = lengths is None or bool((lengths[:-1] >= lengths[1:]).all())
    if lengths is not None and is_sorted:
        counts = (lengths > torch.arange(time).unsqueeze(1)).sum(dim=1).tolist()
    cell, next_cell = cell.contiguous().clone(), torch.empty_like(cell)
    hidden = hidden.clone()
    last = hidden  # what recurs; with `is_sorted`, of the rows that have not ended
    inner = gates.new_empty(rows, dim)
    width = dim if projection is None else projection.shape[1]
    outputs = gates.new_empty(time, rows, width)
    previous = rows
    for t, count in enumerate(counts):
        if count < previous:  # some rows have just ended: they keep what they have
            ended = slice(count, previous)
            if t:
                hidden[ended] = outputs[t - 1, ended]
            next_cell[ended] = cell[ended]
            outputs[t:, ended] = 0.0
            previous = count
        if t % steps == 0:
            input_product(inputs[t : t + steps], weight, gates)
        z, output = gates[t % steps, :count], outputs[t, :count]
        z.addmm_(last[:count], recurrent)
        target = output if projection is None else inner[:count]
        native.call(
            *("cell_forward", z.dtype, count, dim, z, bias, cell, next_cell, target),
            *(forget_bias, cell_clip),
        )
        if projection is not None:
            torch.mm(target, projection, out=output)
            if projection_clip != math.inf:
                output.clamp_(-projection_clip, projection_clip)
        if lengths is None or is_sorted:
            last = output
        else:
            alive = (t < lengths).unsqueeze(1)
            last = torch.where(alive, output, last)
            next_cell = torch.where(alive, next_cell, cell)
        cell, next_cell = next_cell, cell
    hidden[: len(last)] = last
    return outputs, cell, hidden


FORGET_BIAS = 1.0  # added at compute time; the stored bias starts at 0


def plain_lstm(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Tensor | None,
    cell: Tensor,
    hidden: Tensor,
    cell_clip: float,
    projection_clip: float,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer in plain torch: the reference, and the path wherever the fused one cannot be."""
    time, rows, input_dim = inputs.shape
    if torch.is_autocast_enabled(inputs.device.type):
        # Once here, instead of at each time step.
        dtype = torch.get_autocast_dtype(inputs.device.type)
        weight = weight.to(dtype)
        projection = projection.to(dtype) if projection is not None else None
    from_input, recurrent = weight.split([input_dim, weight.shape[0] - input_dim])
    # One product for all time steps; only the recurrent part must wait its turn.
    gates = torch.addmm(bias, inputs.reshape(time * rows, -1), from_input)
    outputs = []
    # unbind, not gates[t]: the latter's backward fills a whole zero tensor per step.
    for t, z in enumerate(gates.view(time, rows, -1).unbind()):
        i, j, f, o = torch.addmm(z, hidden, recurrent).chunk(4, dim=1)  # (rows, dim) each
        kept = torch.sigmoid(f + FORGET_BIAS) * cell
        next_cell = (kept + torch.sigmoid(i) * torch.tanh(j)).clamp(-cell_clip, cell_clip)
        next_hidden = torch.sigmoid(o) * torch.tanh(next_cell)
        if projection is not None:
            next_hidden = (next_hidden @ projection).clamp(-projection_clip, projection_clip)
        outputs.append(next_hidden)
        if lengths is None:
            cell, hidden = next_cell, next_hidden
        else:
            alive = (t < lengths).unsqueeze(1)
            cell = torch.where(alive, next_cell, cell)
            hidden = torch.where(alive, next_hidden, hidden)
    return torch.stack(outputs), cell, hidden
