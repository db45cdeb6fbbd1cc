"""Saves of checkpoints in a background thread, one at a time.

The training loop waits only for the previous save and for a snapshot in host memory. Everything
else, from the first byte written to the verification of the checkpoint and the deletion of older
ones, happens in the thread. Only rank 0 saves, so on the other ranks there is never a save.

Cost: host memory for a copy of weights and optimizer state, from the first save on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from torch import Tensor

from bilm.errors import BilmError, CheckpointError
from bilm.model.devices import HostBuffers
from bilm.training.checkpoints import (
    LSTM_STATE,
    OPTIMIZER,
    TENSOR_FILES,
    WEIGHTS,
    CheckpointStore,
)
from bilm.training.run_record import RunRecord

if TYPE_CHECKING:
    from bilm.distributed.engine import Engine
    from bilm.distributed.ranks import Ranks
    from bilm.model.bilstm import BiLstmState

Snapshot = Mapping[str, dict[str, Tensor]]  # the tensors of a checkpoint, by file and name


@dataclass(frozen=True)
class FinishedSave:
    """A save that has ended, successfully unless there is an `error`."""

    step: int
    path: Path | None
    stall_seconds: float  # during which the training loop waited
    seconds: float  # until the checkpoint was verified
    error: BilmError | None = None


class BackgroundSaves:
    """Writes checkpoints of one run in a thread; the block in which it is used ends after it."""

    def __init__(self, store: CheckpointStore, keep_last: int) -> None:
        self.failure: BilmError | None = None  # of the latest save, once `finished` has returned it
        # Of the tensors of a checkpoint; not to be used while one is being written.
        self.buffers = {file: HostBuffers() for file in TENSOR_FILES}
        self._store, self._keep_last = store, keep_last
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._current: Future[FinishedSave] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.shutdown()

    @property
    def has_failed(self) -> bool:
        """Whether the latest save has failed."""
        if self._current is not None and self._current.done():
            return self._current.result().error is not None
        return self.failure is not None

    def start(self, tensors: Snapshot, record: RunRecord, requested: float) -> None:
        """Start to write a checkpoint; the previous save must have been returned by `finished`.

        `requested` is the value of `time.monotonic` at which the training loop began to wait.
        """
        assert self._current is None, "the previous save has not ended"
        self.failure = None
        stall = time.monotonic() - requested
        self._current = self._writer.submit(self._write, tensors, record, requested, stall)

    def finished(self, wait: bool = False) -> FinishedSave | None:
        """Return a save that has ended since the last call, or None.

        With `wait`, wait for a save that is being written.
        """
        if self._current is None or not (wait or self._current.done()):
            return None
        finished = self._current.result()
        self._current, self.failure = None, finished.error
        return finished

    def _write(
        self, tensors: Snapshot, record: RunRecord, requested: float, stall: float
    ) -> FinishedSave:
        path, error = None, None
        try:
            saved = self._store.save(tensors, record)
            self._store.prune(saved, self._keep_last, record.progress.best_step)
            path = saved.path
        except BilmError as e:
            error = e.with_traceback(None)  # which would keep the snapshot in memory
        except OSError as e:
            error = CheckpointError(f"{e.filename or 'a file'}: {e.strerror}")
        return FinishedSave(record.step, path, stall, time.monotonic() - requested, error)


def take_snapshot(
    engine: Engine, ranks: Ranks, lstm: BiLstmState, buffers: Mapping[str, HostBuffers]
) -> Snapshot:
    """Copy the tensors of a checkpoint to `buffers` on rank 0.

    All ranks must call this; on the others, the files have no tensors.
    """
    rows = {name: ranks.gather_rows(values, dim=2) for name, values in lstm._asdict().items()}
    return {
        WEIGHTS: engine.weights(buffers[WEIGHTS]),
        OPTIMIZER: engine.optimizer_state(buffers[OPTIMIZER]),
        LSTM_STATE: buffers[LSTM_STATE].copy(rows.items()) if ranks.is_first else {},
    }
