"""The kernels of one LSTM time step, for all directions at once.

Tensors are slices (directions, rows, dim) of tensors with more time steps: rows are dense, and the
distance between two directions is an argument. `n` is rows * dim. `lengths` (rows,) may be None; a
row has ended at time `t` if `t` is not below its length.
"""

import triton
import triton.language as tl

from bilm.kernels.triton_ops.activations import clip, sigmoid, tanh


@triton.jit
def _gate(gate, bias, ok):
    """Return a gate before its activation, with its bias."""
    return tl.load(gate, ok).to(tl.float32) + tl.load(bias, ok)


@triton.jit
def _store_gates(gates, dim, i, j, f, o, ok):
    tl.store(gates, i, ok)
    tl.store(gates + dim, j, ok)
    tl.store(gates + 2 * dim, f, ok)
    tl.store(gates + 3 * dim, o, ok)


@triton.jit(do_not_specialize=["t"])
def cell_forward(
    gates,
    bias,
    cell,
    next_cell,
    hidden,
    previous,
    lengths,
    n,
    dim,
    gates_stride,
    cell_stride,
    hidden_stride,
    t,
    forget_bias,
    bound,
    IS_PROJECTED: tl.constexpr,
    SAVES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the cell and the hidden vector; with SAVES, `gates` receives the activations.

    A row that has ended keeps its cell, and its previous hidden vector if there is no projection.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    ok = at < n
    row, unit = at // dim, at % dim
    g = gates + direction * gates_stride + row * 4 * dim + unit
    b = bias + direction * 4 * dim + unit
    c = tl.load(cell + direction * cell_stride + at, ok)
    i, j = sigmoid(_gate(g, b, ok)), tanh(_gate(g + dim, b + dim, ok))
    f = sigmoid(_gate(g + 2 * dim, b + 2 * dim, ok) + forget_bias)
    o = sigmoid(_gate(g + 3 * dim, b + 3 * dim, ok))
    v = clip(f * c + i * j, bound)
    h = o * tanh(v)
    if SAVES:
        _store_gates(g, dim, i, j, f, o, ok)
    if lengths is not None:
        is_running = t < tl.load(lengths + row, ok, other=0)
        v = tl.where(is_running, v, c)
        kept = 0.0
        if not IS_PROJECTED:
            kept = tl.load(previous + direction * hidden_stride + at, ok).to(tl.float32)
        h = tl.where(is_running, h, kept)
    tl.store(next_cell + direction * cell_stride + at, v, ok)
    tl.store(hidden + direction * hidden_stride + at, h, ok)


@triton.jit(do_not_specialize=["t"])
def cell_backward(
    gates,
    cell,
    next_cell,
    grad_hidden,
    grad_previous,
    grad_cell,
    lengths,
    n,
    dim,
    gates_stride,
    cell_stride,
    grad_stride,
    t,
    bound,
    IS_PROJECTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Turn the activations in `gates` into gradients, and update the gradient of the cell.

    The gradient of the hidden vector of a row that has ended is added to that of its previous one,
    if there is no projection.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    ok = at < n
    row = at // dim
    g = gates + direction * gates_stride + row * 4 * dim + at % dim
    i, j = tl.load(g, ok).to(tl.float32), tl.load(g + dim, ok).to(tl.float32)
    f, o = tl.load(g + 2 * dim, ok).to(tl.float32), tl.load(g + 3 * dim, ok).to(tl.float32)
    v = tl.load(next_cell + direction * cell_stride + at, ok)
    gh = tl.load(grad_hidden + direction * grad_stride + at, ok).to(tl.float32)
    old = tl.load(grad_cell + direction * n + at, ok)
    tanh_v = tanh(v)
    gc = old + gh * o * (1 - tanh_v * tanh_v)
    gc = tl.where((v >= bound) | (v <= -bound), 0.0, gc)
    gi, gj = gc * j * i * (1 - i), gc * i * (1 - j * j)
    gf = gc * tl.load(cell + direction * cell_stride + at, ok) * f * (1 - f)
    go = gh * tanh_v * o * (1 - o)
    gc = gc * f
    if lengths is not None:
        is_running = t < tl.load(lengths + row, ok, other=0)
        if not IS_PROJECTED:
            p = grad_previous + direction * grad_stride + at
            tl.store(p, tl.load(p, ok).to(tl.float32) + gh, ok & (is_running == 0))
        gi, gj = tl.where(is_running, gi, 0.0), tl.where(is_running, gj, 0.0)
        gf, go = tl.where(is_running, gf, 0.0), tl.where(is_running, go, 0.0)
        gc = tl.where(is_running, gc, old)
    _store_gates(g, dim, gi, gj, gf, go, ok)
    tl.store(grad_cell + direction * n + at, gc, ok)


@triton.jit(do_not_specialize=["t"])
def clip_forward(output, previous, lengths, n, dim, stride, t, bound, BLOCK: tl.constexpr):
    """Clip the projected output in place; a row that has ended keeps its previous output."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(1).to(tl.int64) * stride + at
    ok = at < n
    y = clip(tl.load(output + place, ok).to(tl.float32), bound)
    if lengths is not None:
        is_running = t < tl.load(lengths + at // dim, ok, other=0)
        y = tl.where(is_running, y, tl.load(previous + place, ok).to(tl.float32))
    tl.store(output + place, y, ok)


@triton.jit(do_not_specialize=["t"])
def clip_backward(
    grad,
    grad_previous,
    output,
    lengths,
    n,
    dim,
    stride,
    t,
    bound,
    BLOCK: tl.constexpr,
):
    """Set the gradient to zero where the output was clipped, in place.

    The gradient of a row that has ended is moved to its previous output.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.program_id(1).to(tl.int64) * stride + at
    ok = at < n
    g = tl.load(grad + place, ok).to(tl.float32)
    is_kept = tl.abs(tl.load(output + place, ok).to(tl.float32)) < bound
    if lengths is not None:
        is_running = t < tl.load(lengths + at // dim, ok, other=0)
        is_kept = is_kept & is_running
        before = tl.load(grad_previous + place, ok).to(tl.float32)
        tl.store(grad_previous + place, before + g, ok & (is_running == 0))
    tl.store(grad + place, tl.where(is_kept, g, 0.0), ok)
