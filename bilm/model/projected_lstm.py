"""One LSTM layer in one direction, with a clipped cell and a clipped projection.

No library has both the projection and the clipping, so the layer is our own: fused
(`bilm/fused_lstm.py`) where that is possible, in plain torch, which is the reference, elsewhere.

Cost at the published size (512/4096), forward, per word: 8.4 million multiply-adds for the input,
8.4 for the recurrence, 2.1 for the projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from bilm.kernels import c_library as native
from bilm.kernels.lstm import FORGET_BIAS, FusedLstm, infer, plain_lstm
from bilm.model.config import LstmConfig


class ProjectedLstm(nn.Module):
    """(time, rows, input_dim) to (time, rows, output_dim), from an explicit state to the next.

    `weight` is the joint matrix over [input, hidden], gates in the order i, j, f, o, as in the
    published files. When `dim` equals `projection_dim` there is no projection, and its clip does
    nothing.
    """

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        self.input_dim = self.output_dim = config.projection_dim
        self.weight = nn.Parameter(torch.empty(self.input_dim + self.output_dim, 4 * config.dim))
        self.bias = nn.Parameter(torch.empty(4 * config.dim))
        self.projection: nn.Parameter | None = None
        if config.projection_dim != config.dim:
            self.projection = nn.Parameter(torch.empty(config.dim, config.projection_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform over the joint matrix, zero bias."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def forward(
        self, inputs: Tensor, cell: Tensor, hidden: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (time, rows, output_dim) and the state after the last word of each row.

        With `lengths` (rows,), a row's state stays as it is from its own length on; its outputs
        there mean nothing.
        """
        clips = (self.config.cell_clip or math.inf, self.config.projection_clip or math.inf)
        weights = (self.weight, self.bias, self.projection)
        if self._can_be_fused(inputs, cell, hidden):
            given = (*self.parameters(), inputs, cell, hidden)
            if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)):
                return infer(inputs, *weights, cell, hidden, *clips, FORGET_BIAS, lengths)
            if lengths is None:
                fused = cast(Callable[..., tuple[Tensor, Tensor, Tensor]], FusedLstm.apply)
                return fused(inputs, *weights, cell, hidden, *clips, FORGET_BIAS)
        return plain_lstm(inputs, *weights, cell, hidden, *clips, lengths)

    def _can_be_fused(self, *tensors: Tensor) -> bool:
        """In plain torch are other devices, lower precision, and machines without a compiler."""
        is_lower = torch.is_autocast_enabled(self.weight.device.type)
        return not is_lower and native.is_available(self.weight, *tensors)
