"""The C functions of the LSTM layer, and the weights in the order in which they read them.

The layer multiplies rows by panels: a few columns of a weight, packed such that the numbers that
are read one after another are adjacent. For products in bfloat16, the packed weights are rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bilm.kernels.c_library import (
    Bfloat16s,
    Bools,
    Floats,
    Int64s,
    Kernel,
    Kind,
    Real,
    Size,
    constant,
)
from bilm.kernels.lstm_types import LstmWeights


class LayerKernels(NamedTuple):
    """The C functions of the layer for one type of packed weights."""

    pack: Kernel
    pack_transposed: Kernel
    pack_gates: Kernel
    forward: Kernel
    backward: Kernel


def _declare(prefix: str, weights: Kind) -> LayerKernels:
    """Declare the C functions whose names have this prefix."""
    sizes = dict.fromkeys(("directions", "time", "rows", "input_dim", "dim", "width"), Size)
    matrix = {"matrix": Floats, "packed": weights}
    return LayerKernels(
        Kernel(f"{prefix}pack", depth=Size, n=Size, **matrix),
        Kernel(f"{prefix}pack_transposed", depth=Size, n=Size, **matrix),
        Kernel(f"{prefix}pack_gates", depth=Size, dim=Size, **matrix),
        Kernel(
            f"{prefix}lstm_forward",
            **sizes,
            projected=Size,
            keeps=Size,
            chunk=Size,
            lengths=Int64s,
            inputs=Floats,
            input_weight=weights,
            recurrent=weights,
            bias=Floats,
            projection=weights,
            gates=Floats,
            cells=Floats,
            hiddens=Floats,
            outputs=Floats,
            hidden=Floats,
            forget_bias=Real,
            cell_clip=Real,
            projection_clip=Real,
        ),
        Kernel(
            f"{prefix}lstm_backward",
            **sizes,
            projected=Size,
            needs_inputs=Size,
            lengths=Int64s,
            input_weight=weights,
            recurrent=weights,
            projection=weights,
            cells=Floats,
            kept=Bools,
            gates=Floats,
            grad_outputs=Floats,
            grad_inputs=Floats,
            grad_cell=Floats,
            grad_hidden=Floats,
            clip=Real,
        ),
    )


IN_FLOATS = _declare("", Floats)
IN_BFLOAT16 = _declare("bfloat16_", Bfloat16s)


def supports(dtype: torch.dtype, product_dtype: torch.dtype) -> bool:
    """Return whether the C code computes products of `dtype` in `product_dtype`.

    bfloat16 requires a processor with instructions for it (AVX512-BF16).
    """
    if product_dtype == torch.bfloat16:
        return dtype == torch.float32 and bool(constant("has_bfloat16"))
    return product_dtype == dtype


class Packed(NamedTuple):
    """The weights of all directions in the order in which forward reads them."""

    input_weight: Tensor
    recurrent: Tensor
    bias: Tensor
    projection: Tensor


def pack(weights: Sequence[LstmWeights], input_dim: int, dtype: torch.dtype) -> Packed:
    """Pack the weights of all directions for forward, with products in `dtype`."""
    lanes = _lanes(weights[0].weight.dtype)
    dim = weights[0].weight.shape[1] // 4
    kernels = kernels_for(dtype)

    def gates_of(matrices: list[Tensor]) -> Tensor:
        depth = matrices[0].shape[0]
        size = (len(matrices), _padded(dim, lanes), 4, _panel_depth(depth, dtype))
        packed = matrices[0].new_empty(size, dtype=dtype)
        for matrix, own in zip(matrices, packed, strict=True):
            kernels.pack_gates(depth=depth, dim=dim, matrix=matrix, packed=own)
        return packed

    all_rows = [own.weight.contiguous() for own in weights]
    return Packed(
        gates_of([weight[:input_dim] for weight in all_rows]),
        gates_of([weight[input_dim:] for weight in all_rows]),
        torch.stack([own.bias for own in weights]),
        pack_matrices([own.projection for own in weights], dtype, is_transposed=False),
    )


def pack_matrices(
    matrices: Sequence[Tensor | None], dtype: torch.dtype, is_transposed: bool
) -> Tensor:
    """Pack one matrix, or its transpose, per direction; return an empty tensor for none."""
    given = [matrix.contiguous() for matrix in matrices if matrix is not None]
    if not given:
        return torch.empty(0, dtype=dtype)
    depth, n = given[0].shape[::-1] if is_transposed else given[0].shape
    size = (len(given), _padded(n, 4 * _lanes(given[0].dtype)), _panel_depth(depth, dtype))
    packed = given[0].new_empty(size, dtype=dtype)
    kernels = kernels_for(dtype)
    kernel = kernels.pack_transposed if is_transposed else kernels.pack
    for matrix, own in zip(given, packed, strict=True):
        kernel(depth=depth, n=n, matrix=matrix, packed=own)
    return packed


def kernels_for(dtype: torch.dtype) -> LayerKernels:
    """Return the C functions for products in `dtype`."""
    return IN_BFLOAT16 if dtype == torch.bfloat16 else IN_FLOATS


def _panel_depth(depth: int, dtype: torch.dtype) -> int:
    """Return the numbers per column of a panel; pairs in bfloat16."""
    return _padded(depth, 2) if dtype == torch.bfloat16 else depth


def _padded(n: int, size: int) -> int:
    return -(-n // size) * size


@functools.cache
def _lanes(dtype: torch.dtype) -> int:
    """Return the numbers of a vector in the C code."""
    return constant("vector_bytes") // dtype.itemsize
