"""The LSTM's time loop with a fused cell, forward and backward.

What makes it fast: one recurrent product a step, added in place to the gates that hold the input's
part; the whole cell in one pass of C; in backward the gates become their gradients in place, and
each weight's gradient is *one* product over all time steps, after the loop.

Memory for backward: gates, cells, hidden vectors and outputs of all time steps. Without gradients
one step's gates at a time are all.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bilm import native


class FusedRecurrence(torch.autograd.Function):
    """`recurrence` of `bilm/projected_lstm.py`, for rows of full length.

    `gates` (time, rows, 4 * dim) is used up: it holds activations after forward and gradients after
    backward, which therefore can run only once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        recurrent: Tensor,
        projection: Tensor | None,
        cell: Tensor,
        hidden: Tensor,
        cell_clip: float,
        projection_clip: float,
        forget_bias: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        time, rows, dim = gates.shape[0], gates.shape[1], gates.shape[2] // 4
        cells = gates.new_empty(time + 1, rows, dim)
        cells[0] = cell
        hiddens = gates.new_empty(time, rows, dim)  # before the projection
        outputs = hiddens
        if projection is not None:
            outputs = gates.new_empty(time, rows, projection.shape[1])
        previous = hidden.contiguous()
        for t in range(time):
            gates[t].addmm_(previous, recurrent)
            native.call(
                "cell_forward",
                *(gates.dtype, rows, dim, gates[t], cells[t], cells[t + 1], hiddens[t]),
                *(float(forget_bias), float(cell_clip)),
            )
            if projection is not None:
                torch.mm(hiddens[t], projection, out=outputs[t])
                if projection_clip != math.inf:
                    outputs[t].clamp_(-projection_clip, projection_clip)
            previous = outputs[t]
        ctx.save_for_backward(gates, recurrent, projection, cells, hiddens, outputs, hidden)
        ctx.clips = (cell_clip, projection_clip)
        ctx.is_used_up = False
        # Copies: a caller may change what it gets (`out += x`), but not what backward needs.
        return outputs.clone(), cells[time].clone(), outputs[time - 1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_used_up:
            raise RuntimeError(
                "this LSTM's backward has run already, and has used up what it needs; run forward "
                "again, or set BILM_NATIVE=0 for a path that can go back twice"
            )
        ctx.is_used_up = True
        gates, recurrent, projection, cells, hiddens, outputs, hidden = ctx.saved_tensors
        cell_clip, projection_clip = ctx.clips
        time, rows, dim = hiddens.shape
        grad_outputs = grads[0].contiguous().clone()  # becomes that before the projection's clip
        grad_cell = grads[1].contiguous().clone()
        grad_hidden = grads[2].contiguous()
        recurrent_t = recurrent.t()
        for t in range(time - 1, -1, -1):
            grad_output = grad_outputs[t].add_(grad_hidden)
            grad_inner = grad_output
            if projection is not None:
                if projection_clip != math.inf:
                    grad_output.masked_fill_(outputs[t].abs() >= projection_clip, 0.0)
                grad_inner = torch.mm(grad_output, projection.t())
            native.call(
                "cell_backward",
                *(gates.dtype, rows, dim, gates[t], cells[t], cells[t + 1], grad_inner, grad_cell),
                float(cell_clip),
            )
            grad_hidden = torch.mm(gates[t], recurrent_t)
        previous = torch.cat([hidden.unsqueeze(0), outputs[:-1]]).flatten(0, 1)
        grad_recurrent = torch.mm(previous.t(), gates.flatten(0, 1))
        grad_projection = None
        if projection is not None:
            grad_projection = torch.mm(hiddens.flatten(0, 1).t(), grad_outputs.flatten(0, 1))
        return gates, grad_recurrent, grad_projection, grad_cell, grad_hidden, None, None, None


def infer(
    gates: Tensor,
    recurrent: Tensor,
    projection: Tensor | None,
    cell: Tensor,
    hidden: Tensor,
    cell_clip: float,
    projection_clip: float,
    forget_bias: float,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same without anything kept for backward; a row's state stays from its length on.

    Where rows come in falling length, nothing is computed for those that have ended: their outputs
    are zeros.
    """
    time, rows, dim = gates.shape[0], gates.shape[1], gates.shape[2] // 4
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
        z, output = gates[t, :count], outputs[t, :count]
        z.addmm_(last[:count], recurrent)
        target = output if projection is None else inner[:count]
        native.call(
            "cell_forward",
            *(gates.dtype, count, dim, z, cell, next_cell, target),
            *(float(forget_bias), float(cell_clip)),
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
