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
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed
from links_network import sent_bytes, shape

from bilm.commands.pretrain import run
from bilm.distributed import engine
from bilm.distributed.dense_exchange import DenseExchange, _Bucket
from bilm.distributed.ranks import Ranks
from bilm.distributed.row_exchange import RowExchange, RowPlan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """Return the task that was written by `to_json`."""
        fields = json.loads(text)
        return Task(**fields | {"phases": [Phase(**each) for each in fields["phases"]]})


class Measurement:
    """Counts steps, starts the phases, and writes their figures."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._phase, self._times = -1, [0.0]
        self._before = [0] * len(task.names)
        self._free_seconds = self._free_bytes = 1.0  # of a step of the first phase
        self.forward = 0.0  # seconds in this phase

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


class PhasedDense(DenseExchange):
    """Sends in the type of the phase, during the backward pass or after it."""

    measurement: ClassVar[Measurement]
    late: ClassVar[list[_Bucket]] = []

    def _send(self, bucket: _Bucket) -> None:
        phase = self.measurement.phase
        self._dtype = DTYPES[phase.dtype]
        if phase.overlap:
            super()._send(bucket)
        else:
            self.late.append(bucket)

    def finish(self) -> None:
        """Send what has not been sent, and finish."""
        for bucket in self.late:
            super()._send(bucket)
        self.late.clear()
        super().finish()


class PhasedRows(RowExchange):
    """Sends in the type of the phase, during the backward pass or after it."""

    measurement: ClassVar[Measurement]

    def _send(self, plan: RowPlan) -> None:
        phase = self.measurement.phase
        self._dtype = DTYPES[phase.dtype]
        if phase.overlap:
            super()._send(plan)

    def finish(self) -> None:
        """Send what has not been sent, and finish."""
        if not self.measurement.phase.overlap:
            super()._send(self._plan)
        super().finish()


def replace_parts(measurement: Measurement) -> None:
    """Let the steps of this process be measured, in its phases."""
    PhasedDense.measurement = PhasedRows.measurement = measurement
    engine.DenseExchange, engine.RowExchange = PhasedDense, PhasedRows
    note_step, call = Ranks.note_step, engine.Engine.__call__

    def noted(self: Ranks, step: int) -> None:
        note_step(self, step)
        measurement.note_step(self.rank)

    def called(self: engine.Engine, *inputs: object) -> object:
        started = time.monotonic()
        outputs = call(self, *inputs)
        measurement.forward += time.monotonic() - started
        return outputs

    Ranks.note_step, engine.Engine.__call__ = noted, called


if __name__ == "__main__":
    replace_parts(Measurement(Task.from_json(os.environ["BILM_LINKS_TASK"])))
    run()
