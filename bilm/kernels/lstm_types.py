"""The arguments and the result of an LSTM layer, shared by its implementations."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

FORGET_BIAS = 1.0  # added at compute time; the stored bias starts at 0


class LstmWeights(NamedTuple):
    """The weights of a layer; the gates are in the order i, j, f, o."""

    weight: Tensor  # (input_dim + output_dim, 4 * dim)
    bias: Tensor  # (4 * dim,)
    projection: Tensor | None  # (dim, output_dim); without it, output_dim is dim


class Clips(NamedTuple):
    """The bounds of the absolute values of the cell and of the projected output."""

    cell: float = math.inf
    projection: float = math.inf


class LayerState(NamedTuple):
    """The recurrent state of a layer."""

    cell: Tensor  # (rows, dim)
    hidden: Tensor  # (rows, output_dim)


class LstmResult(NamedTuple):
    """The outputs (time, rows, output_dim) and the state after the last word of each row."""

    outputs: Tensor
    state: LayerState
