"""The LSTM layer in C in one or several directions, with gradients (`Lstm`) and without (`infer`).

It is fast because one call computes all time steps. The weights are packed once for all of them;
directions and blocks of rows are independent tasks, so that threads wait for each other once per
layer; bias, gates, clip and cell of a few units are computed as soon as their sums are known.
Backward turns the gates into their gradients in place and computes the gradient of each weight as
*one* product over all time steps, after the loop; there, the bias is the last row of its weight.

Memory for backward: gates, cells, hidden vectors and outputs of all time steps. Without gradients,
only the gates of a few time steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bilm.kernels.autograd import allow_one_backward, without_second_derivative
from bilm.kernels.lstm_packing import kernels_for, pack, pack_matrices
from bilm.kernels.lstm_types import FORGET_BIAS, Clips, LayerState, LstmResult, LstmWeights

# Rows x time steps for which the inputs' part of the gates is computed at once: enough to read the
# weights rarely, few enough for the cache.
CHUNK_ROWS = 256
MAX_CHUNK = 16  # time steps


class Sizes(NamedTuple):
    """The sizes of a layer, as the C functions name them."""

    directions: int
    time: int
    rows: int
    input_dim: int
    dim: int
    width: int  # of the output

    @staticmethod
    def of(inputs: Sequence[Tensor], state: LayerState) -> Sizes:
        """Return the sizes for these inputs and the state of all directions."""
        time, rows, input_dim = inputs[0].shape
        dim, width = state.cell.shape[2], state.hidden.shape[2]
        return Sizes(len(inputs), time, rows, input_dim, dim, width)


class Lstm(torch.autograd.Function):
    """The layer in C. The last arguments are inputs, weight, bias and projection of each direction.

    `dtype` is that of products; `cell` and `hidden` are the state of all directions. The results
    are the outputs (directions, time, rows, width), cell and hidden vector. The gates contain
    activations after forward and gradients after backward, so backward can run only once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        clips: Clips,
        dtype: torch.dtype,
        lengths: Tensor | None,
        cell: Tensor,
        hidden: Tensor,
        *own: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs, weights = (
            own[::4],
            [LstmWeights(*own[i + 1 : i + 4]) for i in range(0, len(own), 4)],
        )
        sizes = Sizes.of(inputs, LayerState(cell, hidden))
        lengths = _all_lengths(lengths, sizes)
        shape = (sizes.directions, sizes.time, sizes.rows)
        gates = cell.new_empty(*shape, 4 * sizes.dim)
        cells = cell.new_empty(sizes.directions, sizes.time + 1, sizes.rows, sizes.dim)
        cells[:, 0] = cell
        hiddens = cell.new_empty(*shape, sizes.dim)  # before the projection
        is_projected = weights[0].projection is not None
        outputs = cell.new_empty(*shape, sizes.width) if is_projected else hiddens
        last = hidden.contiguous().clone()
        stacked = torch.stack(inputs)
        kernels_for(dtype).forward(
            **sizes._asdict(),
            projected=int(is_projected),
            keeps=1,
            chunk=_chunk(sizes),
            lengths=lengths,
            inputs=stacked,
            **pack(weights, sizes.input_dim, dtype)._asdict(),
            gates=gates,
            cells=cells,
            hiddens=hiddens,
            outputs=outputs,
            hidden=last,
            forget_bias=FORGET_BIAS,
            cell_clip=clips.cell,
            projection_clip=clips.projection,
        )
        kept = outputs.abs() < clips.projection if is_projected else lengths.new_empty(0).bool()
        joined = _joined(stacked, hidden, outputs)
        ctx.save_for_backward(lengths, gates, cells, hiddens, joined, kept, *own)
        ctx.sizes, ctx.cell_clip, ctx.dtype = sizes, clips.cell, dtype
        # The caller may modify the outputs (`out += x`), but not the tensors saved for backward.
        return outputs if is_projected else outputs.clone(), cells[:, -1].clone(), last

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        allow_one_backward(ctx, "LSTM")
        lengths, gates, cells, hiddens, joined, kept, *own = ctx.saved_tensors
        sizes = ctx.sizes
        weights = [LstmWeights(*own[i + 1 : i + 4]) for i in range(0, len(own), 4)]
        needs = ctx.needs_input_grad[5:]
        grad_outputs, grad_cell, grad_hidden = (
            grad.clone(memory_format=torch.contiguous_format) for grad in grads
        )
        needs_inputs = any(needs[::4])
        grad_inputs = joined.new_empty(*joined.shape[:3], sizes.input_dim if needs_inputs else 0)
        from_input = [w.weight[: sizes.input_dim] if needs_inputs else None for w in weights]
        recurrent = [w.weight[sizes.input_dim :] for w in weights]
        kernels_for(ctx.dtype).backward(
            **sizes._asdict(),
            projected=int(weights[0].projection is not None),
            needs_inputs=int(needs_inputs),
            lengths=lengths,
            input_weight=pack_matrices(from_input, ctx.dtype, is_transposed=True),
            recurrent=pack_matrices(recurrent, ctx.dtype, is_transposed=True),
            projection=pack_matrices(
                [w.projection for w in weights], ctx.dtype, is_transposed=True
            ),
            cells=cells,
            kept=kept,
            gates=gates,
            grad_outputs=grad_outputs,
            grad_inputs=grad_inputs,
            grad_cell=grad_cell,
            grad_hidden=grad_hidden,
            clip=ctx.cell_clip,
        )
        results: list[Tensor | None] = [None, None, None, grad_cell, grad_hidden]
        for d in range(sizes.directions):
            of_input, *of_weight, of_projection = needs[4 * d : 4 * d + 4]
            results.append(grad_inputs[d] if of_input else None)
            both = _product(joined[d], gates[d], ctx.dtype) if any(of_weight) else None
            results += [None, None] if both is None else [both[:-1], both[-1]]
            results.append(
                _product(hiddens[d], grad_outputs[d], ctx.dtype) if of_projection else None
            )
        return tuple(results)


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum over time steps and rows of the outer products of two vectors."""
    factors = a.flatten(0, 1).t().to(dtype), b.flatten(0, 1).to(dtype)
    return torch.mm(*factors).to(a.dtype)


def _joined(inputs: Tensor, hidden: Tensor, outputs: Tensor) -> Tensor:
    """Concatenate the input, the recurrent vector and 1: (..., time, rows, input_dim + width + 1).

    Backward needs one column for each row of the weight, and one for the bias.
    """
    input_dim = inputs.shape[-1]
    joined = outputs.new_empty(*inputs.shape[:-1], input_dim + hidden.shape[-1] + 1)
    joined[..., :input_dim] = inputs
    joined[:, 0, :, input_dim:-1] = hidden
    joined[:, 1:, :, input_dim:-1] = outputs[:, :-1]
    joined[..., -1] = 1.0
    return joined


def _all_lengths(lengths: Tensor | None, sizes: Sizes) -> Tensor:
    """Return the length of each row as int64."""
    if lengths is None:
        return torch.full((sizes.rows,), sizes.time)
    return lengths.to(torch.int64).contiguous()


def _chunk(sizes: Sizes) -> int:
    """Return the number of time steps whose inputs' part of the gates is computed at once."""
    return max(1, min(sizes.time, MAX_CHUNK, CHUNK_ROWS // max(1, sizes.rows)))


def infer(
    inputs: Sequence[Tensor],
    weights: Sequence[LstmWeights],
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None,
    dtype: torch.dtype,
) -> LstmResult:
    """Run the layer in C without gradients, with the inputs and weights of each direction.

    Nothing is computed for a row from its length on: its outputs are zeros there. The state and the
    outputs are those of all directions. Products are computed in `dtype`.
    """
    sizes = Sizes.of(inputs, state)
    chunk = _chunk(sizes)
    packed = pack(weights, sizes.input_dim, dtype)
    gates = state.cell.new_empty(sizes.directions, chunk, sizes.rows, 4 * sizes.dim)
    cell, hidden = (tensor.contiguous().clone() for tensor in state)
    outputs = gates.new_empty(sizes.directions, sizes.time, sizes.rows, sizes.width)
    is_projected = weights[0].projection is not None
    kernels_for(dtype).forward(
        **sizes._asdict(),
        projected=int(is_projected),
        keeps=0,
        chunk=chunk,
        lengths=_all_lengths(lengths, sizes),
        inputs=torch.stack(list(inputs)),
        **packed._asdict(),
        gates=gates,
        cells=cell,
        hiddens=torch.empty_like(cell) if is_projected else outputs,
        outputs=outputs,
        hidden=hidden,
        forget_bias=FORGET_BIAS,
        cell_clip=clips.cell,
        projection_clip=clips.projection,
    )
    return LstmResult(outputs, LayerState(cell, hidden))
