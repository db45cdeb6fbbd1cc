"""The stacks of LSTMs, one per direction, with all layers out and the state in and out.

The directions share nothing but their input's encoder. The state is explicit: two tensors by
direction, layer and row, so that it can be carried from step to step, saved, and split over ranks
by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm


class BiLstmState(NamedTuple):
    """What the LSTMs remember of each row."""

    cell: Tensor  # (directions, layers, rows, dim)
    hidden: Tensor  # (directions, layers, rows, projection_dim)

    def rows(self, start: int, stop: int) -> BiLstmState:
        """The state of some of the rows."""
        return BiLstmState(self.cell[:, :, start:stop], self.hidden[:, :, start:stop])

    def take_rows(self, indices: Sequence[int]) -> BiLstmState:
        """The state of these rows, in this order."""
        return BiLstmState(self.cell[:, :, indices], self.hidden[:, :, indices])

    @staticmethod
    def join_rows(states: Sequence[BiLstmState]) -> BiLstmState:
        """The state of the rows of several states, one after the other."""
        return BiLstmState(*(torch.cat(parts, dim=2) for parts in zip(*states, strict=True)))

    def detach(self) -> BiLstmState:
        """The same state, cut off from the graph: gradients stop here."""
        return BiLstmState(self.cell.detach(), self.hidden.detach())


class BiLstm(nn.Module):
    """One stack of `ProjectedLstm` per direction."""

    def __init__(self, config: LstmConfig, num_directions: int, dropout: float) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.stacks = nn.ModuleList(
            nn.ModuleList(ProjectedLstm(config) for _ in range(config.num_layers))
            for _ in range(num_directions)
        )

    def lstm(self, direction: int, layer: int) -> ProjectedLstm:
        """One layer of one direction, 0 being the forward one."""
        stack = cast(nn.ModuleList, self.stacks[direction])
        return cast(ProjectedLstm, stack[layer])

    def zero_state(self, rows: int) -> BiLstmState:
        """The state before the first word."""
        shape = (len(self.stacks), self.config.num_layers, rows)
        like = next(self.parameters())
        return BiLstmState(
            like.new_zeros(*shape, self.config.dim),
            like.new_zeros(*shape, self.config.projection_dim),
        )

    def forward(
        self, inputs: Sequence[Tensor], state: BiLstmState, lengths: Tensor | None = None
    ) -> tuple[list[list[Tensor]], BiLstmState]:
        """Run each direction over its own inputs (time, rows, dim).

        Returns the outputs of all layers by direction, and the next state. Dropout acts on each
        layer's input, afresh at each time step; the skip connection adds that dropped input.
        It touches the output only: what recurs is the hidden state before the sum.
        """
        all_outputs, cells, hiddens = [], [], []
        for direction, x in enumerate(inputs):
            outputs = []
            for layer in range(self.config.num_layers):
                x = F.dropout(x, self.dropout, self.training)
                y, cell, hidden = self.lstm(direction, layer)(
                    x, state.cell[direction, layer], state.hidden[direction, layer], lengths
                )
                x = y + x if self.config.skip_connections and layer > 0 else y
                outputs.append(x)
                cells.append(cell.to(state.cell.dtype))  # lower precision is for products alone
                hiddens.append(hidden.to(state.hidden.dtype))
            all_outputs.append(outputs)
        shape = state.cell.shape[:3]
        return all_outputs, BiLstmState(
            torch.stack(cells).view(*shape, -1), torch.stack(hiddens).view(*shape, -1)
        )
