"""One LSTM layer with a clipped cell and a clipped projection, in one direction or in several.

This module contains the plain PyTorch reference and selects the implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bilm.kernels import backends, lstm_c, lstm_packing
from bilm.kernels.autograd import apply
from bilm.kernels.checks import (
    INTEGER_TYPES,
    check_dims,
    check_floats,
    check_integers,
    check_not_empty,
    check_numbers,
    check_shape,
)
from bilm.kernels.lstm_types import FORGET_BIAS, Clips, LayerState, LstmResult, LstmWeights


def lstm(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None = None,
) -> LstmResult:
    """Run the layer over `inputs` (time, rows, input_dim).

    With `lengths` (rows,), which must not increase from row to row, the state of a row stays
    unchanged from its length on, and its outputs from there on are meaningless.
    """
    _check(inputs, weights, clips, state)
    if lengths is not None:
        _check_lengths(lengths, inputs)
    backend = _choose([inputs], weights.weight, *state)
    if backend == "triton":
        from bilm.kernels.triton_ops import lstm as in_triton

        return in_triton.lstm(inputs, weights, clips, state, lengths)
    if backend == "c":
        both = LayerState(*(tensor.unsqueeze(0) for tensor in state))
        return _in_c([inputs], [weights], clips, both, lengths)[0]
    return plain_lstm(inputs, weights, clips, state, lengths)


def lstm_directions(
    inputs: Sequence[Tensor],
    weights: Sequence[LstmWeights],
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None = None,
) -> list[LstmResult]:
    """Run the layer in several directions, each over its own inputs with its own weights.

    `state` is that of all directions: (directions, rows, ...). In C and in Triton, one call
    computes all directions.
    """
    backend = _choose(inputs, weights[0].weight, *state)
    states = [LayerState(*each) for each in zip(*state, strict=True)]
    if backend == "torch":
        return [
            lstm(x, own_weights, clips, own_state, lengths)
            for x, own_weights, own_state in zip(inputs, weights, states, strict=True)
        ]
    for x, own_weights, own_state in zip(inputs, weights, states, strict=True):
        _check(x, own_weights, clips, own_state)
    if lengths is not None:
        _check_lengths(lengths, inputs[0])
    if backend == "c":
        return _in_c(inputs, weights, clips, state, lengths)
    from bilm.kernels.triton_ops import lstm as in_triton

    stacked = in_triton.stack_weights(list(weights))
    outputs, after = in_triton.lstm_layer(torch.stack(list(inputs)), stacked, clips, state, lengths)
    return _by_direction(outputs, after)


def _choose(inputs: Sequence[Tensor], weight: Tensor, *state: Tensor) -> backends.Backend:
    """Return the backend; that in C supports the products of autocast on some processors only."""
    dtype = backends.product_dtype(weight)
    # With autocast, the inputs may be results of products in its dtype, which C code converts.
    others = [x for x in inputs if x.dtype != dtype or not x.is_cpu]
    backend = backends.choose(weight, *others, *state)
    return "torch" if backend == "c" and not lstm_packing.supports(weight.dtype, dtype) else backend


def _in_c(
    inputs: Sequence[Tensor],
    weights: Sequence[LstmWeights],
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None,
) -> list[LstmResult]:
    """Run all directions in C, with gradients if they are needed."""
    dtype = backends.product_dtype(weights[0].weight)
    inputs = [x.to(weights[0].weight.dtype) for x in inputs]
    own = [tensor for x, of_x in zip(inputs, weights, strict=True) for tensor in (x, *of_x)]
    if torch.is_grad_enabled() and any(_needs_gradient(tensor) for tensor in (*own, *state)):
        outputs, cell, hidden = apply(lstm_c.Lstm, clips, dtype, lengths, *state, *own)
        return _by_direction(outputs, LayerState(cell, hidden))
    return _by_direction(*lstm_c.infer(inputs, weights, clips, state, lengths, dtype))


def _by_direction(outputs: Tensor, state: LayerState) -> list[LstmResult]:
    """Split the result of all directions."""
    return [
        LstmResult(y, LayerState(*each))
        for y, *each in zip(outputs.unbind(), *(s.unbind() for s in state), strict=True)
    ]


def _check(inputs: Tensor, weights: LstmWeights, clips: Clips, state: LayerState) -> None:
    weight, bias, projection = weights
    cell, hidden = state
    check_floats(weight=weight, bias=bias, inputs=inputs, cell=cell, hidden=hidden)
    check_dims("inputs", inputs, "time", "rows", "input_dim")
    check_dims("weight", weight, "input_dim + output_dim", "4 * dim")
    time, rows, input_dim = inputs.shape
    dim = weight.shape[1] // 4
    output_dim = dim
    if projection is not None:
        check_floats(weight=weight, projection=projection)
        check_dims("projection", projection, "dim", "output_dim")
        output_dim = projection.shape[1]
        check_shape("projection", projection, dim, output_dim)
    for name, size in (("time", time), ("input_dim", input_dim), ("output_dim", output_dim)):
        check_not_empty(name, size)
    check_not_empty("dim", dim)
    check_shape("weight", weight, input_dim + output_dim, 4 * dim)
    check_shape("bias", bias, 4 * dim)
    check_shape("cell", cell, rows, dim)
    check_shape("hidden", hidden, rows, output_dim)
    check_numbers(cell_clip=clips.cell, projection_clip=clips.projection)
    for clip in clips:
        if not clip > 0:
            raise ValueError(f"a clip is {clip}; it must be greater than 0")


def _check_lengths(lengths: Tensor, inputs: Tensor) -> None:
    time, rows, _ = inputs.shape
    check_integers("lengths", lengths, inputs.device, INTEGER_TYPES)
    check_shape("lengths", lengths, rows)
    if not lengths.is_cpu:
        return  # reading them would wait for the device
    values = lengths.tolist()
    if not all(0 <= value <= time for value in values):
        raise ValueError(f"lengths are {values}; all must be from 0 to {time}, the time steps")
    if values != sorted(values, reverse=True):
        raise ValueError(f"lengths are {values}; rows must be sorted by descending length")


def _needs_gradient(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.requires_grad


def plain_lstm(
    inputs: Tensor,
    weights: LstmWeights,
    clips: Clips,
    state: LayerState,
    lengths: Tensor | None = None,
) -> LstmResult:
    """Compute `lstm` in plain PyTorch: the reference."""
    time, rows, input_dim = inputs.shape
    # Cast once for autocast, not at each time step.
    dtype = backends.product_dtype(weights.weight)
    weight, bias = weights.weight.to(dtype), weights.bias
    projection = None if weights.projection is None else weights.projection.to(dtype)
    from_input, recurrent = weight.split([input_dim, weight.shape[0] - input_dim])
    # One product for all time steps; only the recurrent part has to be computed step by step.
    gates = torch.addmm(bias, inputs.flatten(0, 1), from_input)
    outputs = []
    cell, hidden = state
    # unbind, because the backward of gates[t] would fill a zero tensor of full size per step.
    for t, z in enumerate(gates.unflatten(0, (time, rows)).unbind()):
        i, j, f, o = torch.addmm(z, hidden, recurrent).chunk(4, dim=1)  # (rows, dim) each
        kept = torch.sigmoid(f + FORGET_BIAS) * cell
        next_cell = (kept + torch.sigmoid(i) * torch.tanh(j)).clamp(-clips.cell, clips.cell)
        next_hidden = torch.sigmoid(o) * torch.tanh(next_cell)
        if projection is not None:
            next_hidden = (next_hidden @ projection).clamp(-clips.projection, clips.projection)
        outputs.append(next_hidden)
        if lengths is None:
            cell, hidden = next_cell, next_hidden
        else:
            is_running = (t < lengths).unsqueeze(1)
            cell = torch.where(is_running, next_cell, cell)
            hidden = torch.where(is_running, next_hidden, hidden)
    return LstmResult(torch.stack(outputs), LayerState(cell, hidden))
