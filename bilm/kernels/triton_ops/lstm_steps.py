"""One time step of the LSTM layer in Triton: the launches around its products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bilm.kernels.lstm_types import FORGET_BIAS, Clips
from bilm.kernels.triton_ops.launching import BLOCK, blocks, launch
from bilm.kernels.triton_ops.lstm_cell import (
    cell_backward,
    cell_forward,
    clip_backward,
    clip_forward,
)


class Pair(NamedTuple):
    """A tensor before and after a time step."""

    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Steps:
    """What all time steps of a layer have in common."""

    bias: Tensor  # (directions, 4 * dim)
    recurrent: Tensor  # (directions, output_dim, 4 * dim)
    projection: Tensor | None
    clips: Clips
    lengths: Tensor | None
    saves: bool  # whether the gates receive their activations

    def forward(self, t: int, gates: Tensor, cells: Pair, hidden: Tensor, outputs: Pair) -> None:
        """Compute one time step; without a projection, `hidden` is the output after it."""
        gates.baddbmm_(outputs.before, self.recurrent)
        directions, rows, dim = hidden.shape
        launch(
            cell_forward,
            (blocks(rows * dim), directions),
            gates,
            self.bias,
            cells.before,
            cells.after,
            hidden,
            outputs.before,
            self.lengths,
            rows * dim,
            dim,
            gates.stride(0),
            cells.after.stride(0),
            hidden.stride(0),
            t,
            FORGET_BIAS,
            self.clips.cell,
            IS_PROJECTED=self.projection is not None,
            SAVES=self.saves,
            BLOCK=BLOCK,
        )
        if self.projection is not None:
            torch.bmm(hidden, self.projection, out=outputs.after)
            self._clip(t, outputs)

    @property
    def _clips_projection(self) -> bool:
        """Whether the kernels of the clip have an effect; they also leave ended rows unchanged."""
        return self.lengths is not None or self.clips.projection != math.inf

    def _clip(self, t: int, outputs: Pair) -> None:
        if not self._clips_projection:
            return
        output = outputs.after
        directions, rows, width = output.shape
        launch(
            clip_forward,
            (blocks(rows * width), directions),
            output,
            outputs.before,
            self.lengths,
            rows * width,
            width,
            output.stride(0),
            t,
            self.clips.projection,
            BLOCK=BLOCK,
        )

    def unclip(self, t: int, grads: Pair, output: Tensor) -> None:
        """Turn the gradient of the clipped projection into that of the projection, in place.

        `grads` and `output` are slices of tensors of the same shape.
        """
        if not self._clips_projection:
            return
        directions, rows, width = output.shape
        launch(
            clip_backward,
            (blocks(rows * width), directions),
            grads.after,
            grads.before,
            output,
            self.lengths,
            rows * width,
            width,
            output.stride(0),
            t,
            self.clips.projection,
            BLOCK=BLOCK,
        )

    def backward(
        self,
        t: int,
        gates: Tensor,
        cells: Pair,
        grads: Pair,
        grad_hidden: Tensor,
        grad_cell: Tensor,
    ) -> None:
        """Turn the activations of one time step into gradients, in place."""
        directions, rows, dim = grad_hidden.shape
        launch(
            cell_backward,
            (blocks(rows * dim), directions),
            gates,
            cells.before,
            cells.after,
            grad_hidden,
            grads.before,
            grad_cell,
            self.lengths,
            rows * dim,
            dim,
            gates.stride(0),
            cells.after.stride(0),
            grad_hidden.stride(0),
            t,
            self.clips.cell,
            IS_PROJECTED=self.projection is not None,
            BLOCK=BLOCK,
        )
        grads.before.baddbmm_(gates, self.recurrent.transpose(1, 2))
