"""The sum over ranks of the gradients of the softmax tables, whose rows are mostly zero.

The negatives of a step are the same on all ranks, so their rows are summed by one all-reduce. Only
the rows of other targets are gathered. For the same global batch, what a rank sends is bounded: it
is at most twice as much with any number of ranks as with two. All sizes are known on the host: the
ranks exchange the ids of their targets there, before the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed
from torch import Tensor, nn

from bilm.model.softmax import SampledTargets

PADDING = -1  # in place of an id


@dataclass(frozen=True)
class RowPlan:
    """Where the rows of a step's gradient are stored before, during and after the exchange.

    Each rank sends a buffer: the rows of all negatives, then those of its own other targets, padded
    to the same number on all ranks.
    """

    num_negatives: int
    places: tuple[Tensor, ...]  # in the buffer, of the rows of each micro-batch's gradient
    buffer_rows: int
    ids: Tensor  # (rows,) of the sum over ranks, ascending
    negative_places: Tensor  # in `ids`, of the negatives
    target_places: Tensor  # in `ids`, of the gathered rows of all ranks; padding: len(ids)

    def map(self, function: Callable[[Tensor], Tensor]) -> RowPlan:
        """Apply a function, such as a copy to a device, to every tensor."""
        return replace(
            self,
            places=tuple(map(function, self.places)),
            ids=function(self.ids),
            negative_places=function(self.negative_places),
            target_places=function(self.target_places),
        )


def plan_rows(
    parts: Sequence[SampledTargets], max_targets: int, gather: Callable[[Tensor], Tensor]
) -> RowPlan:
    """Plan the exchange of one step, on the host; all ranks must call this.

    `parts` are the targets of this rank's micro-batches, at most `max_targets` of them on any rank.
    `gather` stacks an equally large tensor of all ranks.
    """
    negatives = torch.unique(parts[0].sampled.ids)
    rows = torch.unique(torch.cat([part.rows.ids for part in parts]))
    own = rows[~torch.isin(rows, negatives)]
    padded = torch.nn.functional.pad(own, (0, max_targets - len(own)), value=PADDING)
    gathered = gather(padded)  # (world, max_targets)
    num_targets = int((gathered != PADDING).sum(dim=1).max())
    targets = gathered[:, :num_targets].flatten()
    is_padding = targets == PADDING
    ids = torch.unique(torch.cat([negatives, targets[~is_padding]]))
    return RowPlan(
        num_negatives=len(negatives),
        places=tuple(_places_in_buffer(part.rows.ids, negatives, own) for part in parts),
        buffer_rows=len(negatives) + num_targets,
        ids=ids,
        negative_places=torch.searchsorted(ids, negatives),
        target_places=torch.searchsorted(ids, targets).masked_fill_(is_padding, len(ids)),
    )


def _places_in_buffer(ids: Tensor, negatives: Tensor, own: Tensor) -> Tensor:
    among_own = len(negatives) + torch.searchsorted(own, ids)
    return torch.where(torch.isin(ids, negatives), torch.searchsorted(negatives, ids), among_own)


class RowExchange:
    """Averages the sparse gradients of the tables of a softmax over ranks.

    Call `start` before the backward pass of each micro-batch, and `finish` after the last one. The
    softmax is the first to compute its gradients, so they are sent while others are computed.
    """

    def __init__(self, tables: Sequence[nn.Parameter], dtype: torch.dtype) -> None:
        """Exchange the rows of these tables in `dtype`."""
        self._tables, self._dtype = tables, dtype
        self._plan: RowPlan | None = None
        self._buffer = self._targets = torch.empty(0)
        self._works: list[torch.distributed.Work] = []
        self._num_parts = self._num_missing = 0
        self._is_last = False
        for table in tables:
            table.register_post_accumulate_grad_hook(lambda _: self._note())

    def start(self, plan: RowPlan, is_last: bool) -> None:
        """Collect the gradients of the next backward pass; send all of them after the last."""
        self._plan, self._is_last, self._num_missing = plan, is_last, len(self._tables)

    def _note(self) -> None:
        self._num_missing -= 1
        if self._plan is not None and not self._num_missing:
            self._collect(self._plan)
            if self._is_last:
                self._send(self._plan)

    def _collect(self, plan: RowPlan) -> None:
        """Add the gradient of one micro-batch to the buffer, and remove it from the tables."""
        if self._num_parts == 0:
            width = sum(table.shape[1] for table in self._tables)
            self._buffer = self._tables[0].new_zeros(plan.buffer_rows, width)
        places = plan.places[self._num_parts]
        values = [table.grad._values() for table in self._tables if table.grad is not None]
        self._buffer.index_add_(0, places, torch.cat(values, dim=1))
        for table in self._tables:
            table.grad = None
        self._num_parts += 1

    def _send(self, plan: RowPlan) -> None:
        self._buffer = self._buffer.detach().to(self._dtype)
        own = self._buffer[plan.num_negatives :]
        world = torch.distributed.get_world_size()
        self._targets = own.new_empty(world * len(own), own.shape[1])
        self._works = [
            torch.distributed.all_gather_into_tensor(self._targets, own, async_op=True),
            torch.distributed.all_reduce(self._buffer[: plan.num_negatives], async_op=True),
        ]

    def finish(self) -> None:
        """Set the gradients of the tables to the average over ranks of what was collected."""
        plan = self._plan
        if plan is None or not self._works:
            raise RuntimeError("the rows of the last micro-batch have not been sent")
        for work in self._works:
            work.wait()
        negatives, targets = self._buffer[: plan.num_negatives], self._targets
        total = negatives.new_zeros(len(plan.ids) + 1, negatives.shape[1], dtype=torch.float32)
        total.index_add_(0, plan.negative_places, negatives.float())
        total.index_add_(0, plan.target_places, targets.float())
        total = total[:-1].div_(torch.distributed.get_world_size())
        columns = total.split([table.shape[1] for table in self._tables], dim=1)
        for table, values in zip(self._tables, columns, strict=True):
            indices = plan.ids.unsqueeze(0)
            # The ids are distinct and ascending. Without checks, nothing waits for an accelerator.
            table.grad = torch.sparse_coo_tensor(
                indices, values.contiguous(), table.shape, check_invariants=False
            )._coalesced_(True)
        self._plan, self._works, self._num_parts = None, [], 0
        self._buffer = self._targets = torch.empty(0)
