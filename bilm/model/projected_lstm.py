"""One LSTM layer in one direction, with a clipped cell and a clipped projection.

No library offers both the projection and the clipping. `bilm/kernels/lstm.py` computes the layer.

Cost at the published size (512/4096), forward, per word: 8.4 million multiply-adds for the input,
8.4 million for the recurrence, 2.1 million for the projection.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bilm.kernels.lstm import lstm
from bilm.kernels.lstm_types import Clips, LayerState, LstmResult, LstmWeights
from bilm.model.config import LstmConfig


class ProjectedLstm(nn.Module):
    """Map inputs (time, rows, input_dim) to outputs (time, rows, output_dim).

    `weight` is the joint matrix over [input, hidden], with the gates in the order i, j, f, o, as in
    the published files. If `dim` equals `projection_dim` there is no projection, and its clip has
    no effect.
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
        """Initialize the joint matrix and the projection Glorot-uniformly, the bias with zeros."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def forward(
        self, inputs: Tensor, state: LayerState, lengths: Tensor | None = None
    ) -> LstmResult:
        """Return the outputs and the state after the last word of each row.

        With `lengths` (rows,), in descending order, the state of a row stays unchanged from its
        length on, and its outputs from there on are meaningless.
        """
        return lstm(inputs, self.weights, self.clips, state, lengths)

    @property
    def weights(self) -> LstmWeights:
        """The weights of the layer, as the kernels read them."""
        return LstmWeights(self.weight, self.bias, self.projection)

    @property
    def clips(self) -> Clips:
        """The configured bounds; infinity for no clipping."""
        return Clips(
            cell=self.config.cell_clip or math.inf,
            projection=self.config.projection_clip or math.inf,
        )
