"""Stacks of LSTMs, one per direction; they return the outputs of all layers and the next state.

The directions share only the encoder of their input. The state is explicit: two tensors, indexed by
direction, layer and row, so that it can be carried from step to step, saved, and split by row over
ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from bilm.kernels.checks import check_floats, check_shape
from bilm.kernels.dropout import DropoutSeed, active_seed, dropout
from bilm.kernels.lstm import lstm_directions
from bilm.kernels.lstm_types import LayerState
from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm


class BiLstmState(NamedTuple):
    """The recurrent state of all LSTMs for each row."""

    cell: Tensor  # (directions, layers, rows, dim)
    hidden: Tensor  # (directions, layers, rows, projection_dim)

    def rows(self, start: int, stop: int) -> BiLstmState:
        """Return the state of the rows from `start` to `stop`."""
        return BiLstmState(self.cell[:, :, start:stop], self.hidden[:, :, start:stop])

    def take_rows(self, indices: Sequence[int]) -> BiLstmState:
        """Return the state of the rows at `indices`, in that order."""
        return BiLstmState(self.cell[:, :, indices], self.hidden[:, :, indices])

    @staticmethod
    def join_rows(states: Sequence[BiLstmState]) -> BiLstmState:
        """Concatenate the rows of several states."""
        return BiLstmState(*(torch.cat(parts, dim=2) for parts in zip(*states, strict=True)))

    def detach(self) -> BiLstmState:
        """Return the state without its graph, so that gradients stop here."""
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
        """Return one layer of one direction; direction 0 is forward."""
        stack = cast(nn.ModuleList, self.stacks[direction])
        return cast(ProjectedLstm, stack[layer])

    def zero_state(self, rows: int) -> BiLstmState:
        """Return the state before the first word."""
        shape = (len(self.stacks), self.config.num_layers, rows)
        like = next(self.parameters())
        return BiLstmState(
            like.new_zeros(*shape, self.config.dim),
            like.new_zeros(*shape, self.config.projection_dim),
        )

    def forward(
        self,
        inputs: Sequence[Tensor],
        state: BiLstmState,
        lengths: Tensor | None = None,
        dropout_seed: DropoutSeed | None = None,
    ) -> tuple[list[list[Tensor]], BiLstmState]:
        """Run each direction over its own inputs (time, rows, dim).

        Returns the outputs of all layers by direction, and the next state. Dropout is applied to
        each layer's input, with a new mask at each time step; the skip connection adds the input
        after dropout. The skip connection affects only the output: the recurrent hidden state is
        the one before the sum. For `lengths`, see `ProjectedLstm.forward`. The seed of dropout is
        drawn if it is not given; outside training it has no effect.
        """
        self._check(inputs, state)
        seed = active_seed(self.training, self.dropout, dropout_seed)
        all_outputs: list[list[Tensor]] = [[] for _ in inputs]
        states: list[list[LayerState]] = [[] for _ in inputs]
        xs = list(inputs)
        for layer in range(self.config.num_layers):
            xs = [dropout(x, self.dropout, seed, layer, d) for d, x in enumerate(xs)]
            lstms = [self.lstm(direction, layer) for direction in range(len(xs))]
            before = LayerState(state.cell[:, layer], state.hidden[:, layer])
            weights = [lstm.weights for lstm in lstms]
            results = lstm_directions(xs, weights, lstms[0].clips, before, lengths)
            for direction, (y, after) in enumerate(results):
                is_added = self.config.skip_connections and layer > 0
                xs[direction] = y + xs[direction] if is_added else y
                all_outputs[direction].append(xs[direction])
                states[direction].append(after)
        # Autocast lowers the precision of matrix products only, not that of the state.
        cells = [after.cell.to(state.cell.dtype) for own in states for after in own]
        hiddens = [after.hidden.to(state.hidden.dtype) for own in states for after in own]
        return all_outputs, BiLstmState(
            torch.stack(cells).view_as(state.cell), torch.stack(hiddens).view_as(state.hidden)
        )

    def _check(self, inputs: Sequence[Tensor], state: BiLstmState) -> None:
        directions, config = len(self.stacks), self.config
        if len(inputs) != directions:
            raise ValueError(f"there are {len(inputs)} inputs; there must be {directions}")
        check_floats(cell=state.cell, hidden=state.hidden)
        for name, tensor, dim in (
            ("state.cell", state.cell, config.dim),
            ("state.hidden", state.hidden, config.projection_dim),
        ):
            rows = tensor.shape[2] if tensor.dim() == 4 else 1
            check_shape(name, tensor, directions, config.num_layers, rows, dim)
