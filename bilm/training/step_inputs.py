"""The inputs of a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from bilm.distributed.row_exchange import RowPlan
from bilm.model.softmax import SampledTargets


@dataclass(frozen=True)
class MicroBatch:
    """The tensors of a micro-batch."""

    micro: int
    num_predictions: int  # per direction
    words: Tensor
    word_index: Tensor
    targets: Tensor
    sampled: SampledTargets | None  # None for the full softmax

    def map(self, function: Callable[[Tensor], Tensor]) -> MicroBatch:
        """Apply a function, such as a copy to a device, to every tensor."""
        return replace(
            self,
            words=function(self.words),
            word_index=function(self.word_index),
            targets=function(self.targets),
            sampled=None if self.sampled is None else self.sampled.map(function),
        )


@dataclass(frozen=True)
class StepInputs:
    """The micro-batches of a training step."""

    batches: tuple[MicroBatch, ...]
    rows: RowPlan | None  # None if ranks exchange no sparse gradients

    def map(self, function: Callable[[Tensor], Tensor]) -> StepInputs:
        """Apply a function, such as a copy to a device, to every tensor."""
        return StepInputs(
            tuple(batch.map(function) for batch in self.batches),
            None if self.rows is None else self.rows.map(function),
        )
