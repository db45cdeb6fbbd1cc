"""bilm/distributed/ranks."""

from __future__ import annotations

import datetime
import json
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import deepspeed
import torch
import torch.distributed
from deepspeed.accelerator import get_accelerator
from torch import Tensor

from bilm.distributed.heartbeat import Watch
from bilm.errors import BilmError, CheckpointError, PeerError


class Cluster:
    """The ranks of this run, and the little that they say to one another."""

    def __init__(self, timeout_seconds: int) -> None:
        _run_alone_if_not_launched()
        # DeepSpeed would compile its shared-memory collectives for minutes at the first start,
        # and a kill in that time leaves a lock on which every later start hangs.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        accelerator = get_accelerator()
        self.device = torch.device(accelerator.device_name(local_rank))
        if self.device.type != "cpu":
            accelerator.set_device(local_rank)
        torch.sparse.check_sparse_tensor_invariants.disable()  # said, so that torch does not warn
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
        deepspeed.init_distributed(
            dist_backend="gloo" if self.device.type == "cpu" else None,
            timeout=datetime.timedelta(seconds=timeout_seconds),
            verbose=False,
        )
        self._watch: Watch | None = None
        if self.world > 1:
            self._watch = Watch(self.rank, self.world, timeout_seconds, self.broadcast_json)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def gather(self, values: Tensor) -> Tensor:
        """The same small tensor of every rank: (world, ...)."""
        values = values.to(self.device)
        parts = [torch.empty_like(values) for _ in range(self.world)]
        torch.distributed.all_gather(parts, values)
        return torch.stack(parts)

    def gather_rows(self, tensor: Tensor, dim: int) -> Tensor:
        """The equal parts that the ranks hold, joined along `dim`."""
        return torch.cat(self.gather(tensor.contiguous()).unbind(), dim=dim)

    def any(self, flag: bool) -> bool:
        """Whether any rank says so; all ranks must ask."""
        return bool(self.gather(torch.tensor([int(flag)])).any())

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor, on every rank; all ranks give one of the same shape and type."""
        tensor = tensor.to(self.device).contiguous()
        torch.distributed.broadcast(tensor, 0)
        return tensor

    def broadcast_json(self, value: Any) -> Any:
        """Rank 0's plain value, on every rank."""
        data = json.dumps(value).encode() if self.is_first else b""
        size = int(self.broadcast(torch.tensor([len(data)])))
        buffer = torch.zeros(size, dtype=torch.uint8)
        if self.is_first:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return json.loads(bytes(self.broadcast(buffer).cpu().tolist()))

    @contextmanager
    def together(self) -> Iterator[None]:
        """A part that may fail on some ranks only: all leave it, or all end with an error.

        The first rank that failed speaks; what the others would say is mostly the same.
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
        """Tell the other ranks which step this one is at."""
        if self._watch is not None:
            self._watch.note_step(step)

    @contextmanager
    def naming_lost_ranks(self) -> Iterator[None]:
        """Whatever this rank leaves for: the others do not miss it, and it names whom it misses."""
        try:
            yield
        except RuntimeError as error:
            lost = None if self._watch is None else self._watch.explain(error)
            if lost is None:
                raise
            raise lost from None
        finally:
            if self._watch is not None:
                self._watch.stop()

    def close(self) -> None:
        """Leave the group in order."""
        torch.distributed.destroy_process_group()


def _run_alone_if_not_launched() -> None:
    """`python launch/pretrain.py` without a launcher is a run of one rank."""
    if "RANK" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
