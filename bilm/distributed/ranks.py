"""The ranks of a run: the process group, and the few values that ranks exchange.

Each process computes on one device: an accelerator, chosen by its local rank, with PyTorch's
default backend for communication (NCCL on CUDA), or the CPU with gloo. `DS_ACCELERATOR=cpu` selects
the CPU on a machine that has GPUs.
"""

from __future__ import annotations

import datetime
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from bilm.distributed.heartbeat import Heartbeat
from bilm.distributed.joining import join_store
from bilm.distributed.process import rank_numbers
from bilm.errors import BilmError, CheckpointError, PeerError

_ENVIRONMENT_OF_SINGLE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


@dataclass(frozen=True)
class Timeouts:
    """How long ranks wait for each other."""

    step_seconds: int  # in a step; also how long a rank may send no heartbeat
    startup_seconds: int  # until the end of the first step


class Ranks:
    """This process's view of the ranks of its run."""

    def __init__(self, timeouts: Timeouts, on_cpu: bool = False, job: str = "") -> None:
        """Join the process group of `job`, a name that is the same on all of its ranks."""
        numbers = rank_numbers()
        self.rank, self.world = numbers.rank, numbers.world
        self.is_first_on_machine = numbers.local_rank == 0
        self.device = torch.device("cpu") if on_cpu else _choose_device(numbers.local_rank)
        self.destroy_group: Callable[[], object] = torch.distributed.destroy_process_group
        self._host_group: torch.distributed.ProcessGroup | None = None  # None: the default group
        self._timeouts, self._is_starting = timeouts, True
        self._join(job)
        self._heartbeat: Heartbeat | None = None
        if self.world > 1:
            self._heartbeat = Heartbeat(
                self.rank, self.world, timeouts.step_seconds, self.broadcast_json
            )

    def _join(self, job: str) -> None:
        timeout = datetime.timedelta(seconds=self._timeouts.startup_seconds)
        torch.distributed.init_process_group(
            torch.distributed.Backend.default_device_backend_map[self.device.type],
            timeout=timeout,
            world_size=self.world,
            rank=self.rank,
            store=join_store(job, self._timeouts.startup_seconds)
            if self.world > 1
            # no port, so any number of such runs may share a machine
            else torch.distributed.HashStore(),  # type: ignore[attr-defined]
        )
        if self.world > 1 and self.device.type != "cpu":
            self._host_group = torch.distributed.new_group(timeout=timeout, backend="gloo")

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and logs."""
        return self.rank == 0

    def gather(self, values: Tensor) -> Tensor:
        """Stack the tensors of all ranks, which must have the same shape: (world, ...)."""
        values = values.to(self.device)
        parts = [torch.empty_like(values) for _ in range(self.world)]
        torch.distributed.all_gather(parts, values)
        return torch.stack(parts)

    def gather_on_host(self, values: Tensor) -> Tensor:
        """Stack the CPU tensors of all ranks like `gather`, without waiting for an accelerator."""
        parts = [torch.empty_like(values) for _ in range(self.world)]
        torch.distributed.all_gather(parts, values, group=self._host_group)
        return torch.stack(parts)

    def gather_rows(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the equal parts of all ranks, joined along `dim`."""
        return torch.cat(self.gather(tensor.contiguous()).unbind(), dim=dim)

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any rank; all ranks must call this."""
        return bool(self.gather(torch.tensor([int(flag)])).any())

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return rank 0's tensor on every rank; all ranks pass one of the same shape and type."""
        tensor = tensor.to(self.device).contiguous()
        torch.distributed.broadcast(tensor, 0)
        return tensor

    def broadcast_json(self, value: Any) -> Any:
        """Return rank 0's JSON value on every rank."""
        data = json.dumps(value).encode() if self.is_first else b""
        size = int(self.broadcast(torch.tensor([len(data)])))
        buffer = torch.zeros(size, dtype=torch.uint8)
        if self.is_first:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return json.loads(bytes(self.broadcast(buffer).cpu().tolist()))

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Run a block that may fail on some ranks only; if it fails on one, all ranks fail.

        The failed rank with the lowest number raises its error. All others raise `PeerError`, which
        is not printed, because their errors would mostly be repetitions.
        """
        failure: BilmError | None = None
        try:
            yield
        except BilmError as error:
            failure = error
        except OSError as error:
            failure = CheckpointError(f"{error.filename or 'a file'}: {error.strerror}")
        failed = self.gather(torch.tensor([int(failure is not None)])).flatten().tolist()
        if failure is not None and self.rank == failed.index(1):
            raise failure
        if any(failed):
            raise PeerError("another rank has failed")

    def note_step(self, step: int) -> None:
        """Record the number of finished steps; after the first one, the shorter timeout applies."""
        if self._heartbeat is None:
            return
        self._heartbeat.note_step(step)
        if self._is_starting:
            self._is_starting = False
            timeout = datetime.timedelta(seconds=self._timeouts.step_seconds)
            for group in torch.distributed.distributed_c10d._world.pg_map:
                torch.distributed.distributed_c10d._set_pg_timeout(timeout, group)

    @contextmanager
    def report_lost_ranks(self) -> Iterator[None]:
        """Translate a failed collective into an error that names the lost rank.

        When the block ends, with or without an error, notify the other ranks of the exit.
        """
        try:
            yield
        except RuntimeError as error:
            lost = None if self._heartbeat is None else self._heartbeat.explain(error)
            if lost is None:
                raise
            raise lost from None
        finally:
            if self._heartbeat is not None:
                self._heartbeat.stop()

    def close(self) -> None:
        """Leave the process group."""
        self.destroy_group()


@contextmanager
def join_ranks(timeouts: Timeouts, on_cpu: bool = False, job: str = "") -> Iterator[Ranks]:
    """Join the ranks of this run for a block; leave the group when the block succeeds.

    After an error a group of several ranks is not destroyed, because that could wait for a lost
    rank.
    """
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(enable=False):
        # The invariants are set explicitly to avoid a PyTorch warning at the first sparse tensor.
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        with _environment_of_single_rank():
            ranks = Ranks(timeouts, on_cpu, job)
            try:
                with ranks.report_lost_ranks():
                    yield ranks
            except BaseException:
                if ranks.world == 1:
                    ranks.close()
                raise
            ranks.close()


def _choose_device(local_rank: int) -> torch.device:
    """Return the GPU of this rank and make it the current device, or return the CPU."""
    accelerator = torch.accelerator.current_accelerator()
    if os.environ.get("DS_ACCELERATOR") == "cpu" or not torch.accelerator.is_available():
        accelerator = None
    if accelerator is None or accelerator.type == "mps":  # which does not support float64
        return torch.device("cpu")
    if local_rank > 0 and torch.accelerator.device_count() == 1:
        # Each rank sees only its own GPU, as with `srun --gpus-per-task 1`.
        local_rank = 0
        os.environ["LOCAL_RANK"] = "0"  # from which DeepSpeed chooses the device
    torch.get_device_module(accelerator).set_device(local_rank)
    return torch.device(accelerator.type, local_rank)


@contextmanager
def _environment_of_single_rank() -> Iterator[None]:
    """For a run of one rank, set the variables that DeepSpeed reads and no launcher has set."""
    missing = set(_ENVIRONMENT_OF_SINGLE_RANK) - set(os.environ)
    variables = missing if rank_numbers().world == 1 else ()
    os.environ.update({name: _ENVIRONMENT_OF_SINGLE_RANK[name] for name in variables})
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
