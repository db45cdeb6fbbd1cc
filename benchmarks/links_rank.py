"""A rank of benchmarks/links.py: trains as launch/pretrain.py does, in measured phases.

A phase is a number of steps with one rate of the links, one type of the exchanged gradients, and
with or without overlap of the exchange and the backward pass. Phases follow each other in the same
processes, so that they are compared under the same conditions. The first step of a phase is not
counted. Rank 0 sets the rates, and writes a JSON line per phase.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed
from links_network import sent_bytes, shape

from bilm.commands.pretrain import run
from bilm.distributed import dense_exchange, engine
from bilm.distributed.dense_exchange import DenseExchange
from bilm.distributed.engine import Engine
from bilm.distributed.ranks import Ranks
from bilm.distributed.row_exchange import RowExchange, RowPlan


@dataclass(frozen=True)
class Phase:
    """The conditions of some steps."""

    rate: int  # bits per second
    steps: int
    load: float = 0.0  # if it is not 0, the rate at which sending takes this share of a free step
    dtype: str = "float32"
    overlap: bool = True


@dataclass(frozen=True)
class Task:
    """What all ranks measure, in order."""

    names: list[str]  # of the machines
    hub: str
    output: str
    phases: list[Phase]
    bucket_bytes: int = dense_exchange.BUCKET_BYTES

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """Return the task that was written by `to_json`."""
        fields = json.loads(text)
        return Task(**fields | {"phases": [Phase(**each) for each in fields["phases"]]})


class Measurement:
    """Counts steps and starts the phases; replaces parts of the exchanges."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._phase, self._times = -1, [0.0]
        self._before = [0] * len(task.names)
        self._free_seconds = self._free_bytes = 1.0  # of a step of the first phase
        self.forward = 0.0  # seconds in this phase
        self.exchanges: list[DenseExchange | RowExchange] = []

    @property
    def phase(self) -> Phase:
        """The current phase; before the first one, the first."""
        return self._task.phases[max(0, self._phase)]

    def note_step(self, rank: int) -> None:
        """Count a step; at the end of a phase, start the next one or exit."""
        self._times.append(time.monotonic())
        if self._phase >= 0 and len(self._times) == 2 and rank == 0:
            self._before = self._counters()  # the first step is not counted
            self._times[-1] = time.monotonic()
            self.forward = 0.0
        if self._phase >= 0 and len(self._times) < self.phase.steps + 2:
            return
        if rank == 0 and self._phase >= 0:
            self._write()
        torch.distributed.barrier()
        self._phase += 1
        if self._phase == len(self._task.phases):
            os._exit(0)
        if rank == 0:
            shape(self._task.names, self._task.hub, self._rate())
        for exchange in self.exchanges:
            exchange._dtype = getattr(torch, self.phase.dtype)
        torch.distributed.barrier()
        self._times = [time.monotonic()]

    def _rate(self) -> int:
        if self.phase.load == 0.0:
            return self.phase.rate
        return round(8 * self._free_bytes / self._free_seconds / self.phase.load)

    def _counters(self) -> list[int]:
        return [sent_bytes(name) for name in self._task.names]

    def _write(self) -> None:
        counted = self._times[1:]
        steps = len(counted) - 1
        sent = [
            (after - before) / steps
            for before, after in zip(self._before, self._counters(), strict=True)
        ]
        seconds = [after - before for before, after in itertools.pairwise(counted)]
        line = asdict(self.phase) | {"rate": self._rate(), "seconds": seconds, "sent": sent}
        line["forward"] = self.forward
        if self._phase == 0:
            self._free_seconds, self._free_bytes = statistics.median(seconds), sent[0]
        with Path(self._task.output).open("a", encoding="utf-8") as output:
            output.write(json.dumps(line) + "\n")


def replace_parts(task: Task) -> None:
    """Let `Measurement` observe the steps and change the exchanges."""
    measurement = Measurement(task)
    note_step, send, finish = Ranks.note_step, DenseExchange._send, DenseExchange.finish
    call, send_rows, finish_rows = Engine.__call__, RowExchange._send, RowExchange.finish
    late: list[object] = []

    def noted(self: Ranks, step: int) -> None:
        note_step(self, step)
        measurement.note_step(self.rank)

    def sent(self: DenseExchange, bucket: dense_exchange._Bucket) -> None:
        if measurement.phase.overlap:
            send(self, bucket)
        else:
            late.append(bucket)

    def finished(self: DenseExchange) -> None:
        for bucket in late:
            send(self, bucket)
        late.clear()
        finish(self)

    def called(self: Engine, *inputs: object) -> object:
        started = time.monotonic()
        outputs = call(self, *inputs)
        measurement.forward += time.monotonic() - started
        return outputs

    Engine.__call__ = called
    Ranks.note_step = noted

    def sent_rows(self: RowExchange, plan: RowPlan) -> None:
        if measurement.phase.overlap:
            send_rows(self, plan)

    def finished_rows(self: RowExchange) -> None:
        if not measurement.phase.overlap:
            send_rows(self, self._plan)
        finish_rows(self)

    RowExchange._send, RowExchange.finish = sent_rows, finished_rows
    DenseExchange._send = sent
    DenseExchange.finish = finished

    def dense(*arguments: object) -> DenseExchange:
        measurement.exchanges.append(DenseExchange(*arguments, task.bucket_bytes))
        return measurement.exchanges[-1]

    def rows(*arguments: object) -> RowExchange:
        measurement.exchanges.append(RowExchange(*arguments))
        return measurement.exchanges[-1]

    engine.DenseExchange = dense
    engine.RowExchange = rows


if __name__ == "__main__":
    replace_parts(Task.from_json(os.environ["BILM_LINKS_TASK"]))
    run()
