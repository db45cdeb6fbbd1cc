"""Start the ranks of one machine, and stop them when the standard input is closed.

`bilm pretrain --restarts` runs `python -m bilm.distributed.machine_ranks` on each machine, through
ssh if it is another one. The first line of the standard input describes the ranks. Its end stops
them: it is closed on purpose, or because the other end or the connection was lost. This module does
not import torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial

from bilm.distributed.process import die_with_parent
from bilm.distributed.signals import STOP_SIGNALS
from bilm.errors import LOST_RANK_EXIT_CODE, STOPPED_EXIT_CODE, USER_ERROR_EXIT_CODE, run_command

_STOP_SECONDS = 600.0  # after which ranks that have been asked to stop are killed

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class MachineRanks:
    """The ranks of one machine, the address of rank 0, and the arguments of `bilm pretrain`."""

    first_rank: int
    num_ranks: int
    world: int
    address: str
    port: int
    arguments: tuple[str, ...]
    environment: dict[str, str]

    def to_line(self) -> str:
        """Return the line that `main` reads."""
        return json.dumps(asdict(self)) + "\n"

    def variables(self, local_rank: int) -> dict[str, str]:
        """Return the environment of a rank, as an operator of Kubernetes would set it."""
        return {
            **os.environ,
            **self.environment,
            "RANK": str(self.first_rank + local_rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(self.num_ranks),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def combine_exit_codes(codes: Iterable[int]) -> int:
    """Return the exit code of a run from those of its ranks or machines.

    An error that would occur again has priority over a lost rank. A rank that was killed, and a
    machine that ssh could not reach, are lost.
    """
    found = {code if code >= 0 else 128 - code for code in codes} - {0}
    resumable = {LOST_RANK_EXIT_CODE, STOPPED_EXIT_CODE}
    errors = sorted(code for code in found - resumable if code < 128)
    if errors:  # ranks that another one has told to stop exit with 2
        return min(errors, key=lambda code: code == USER_ERROR_EXIT_CODE)
    if found <= {STOPPED_EXIT_CODE}:
        return STOPPED_EXIT_CODE if found else 0
    return LOST_RANK_EXIT_CODE


def main() -> int:
    """Start the ranks, and return the combined exit code after all of them have exited."""
    tree = json.loads(sys.stdin.buffer.readline())
    job = MachineRanks(**{**tree, "arguments": tuple(tree["arguments"])})
    stop = threading.Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    command = [sys.executable, "-m", "bilm.commands.pretrain", *job.arguments]
    ranks = [
        subprocess.Popen(
            command,
            env=job.variables(local_rank),
            stdin=subprocess.DEVNULL,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),
        )
        for local_rank in range(job.num_ranks)
    ]
    threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    return combine_exit_codes(_wait(ranks, stop))


def _wait_for_end(stop: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop.set()


def _wait(ranks: list[subprocess.Popen[bytes]], stop: threading.Event) -> list[int]:
    """Wait until all ranks have exited, and return their exit codes."""
    deadline = None
    while any(rank.poll() is None for rank in ranks):
        if stop.is_set() and deadline is None:
            deadline = time.monotonic() + _STOP_SECONDS
            _signal(ranks, signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            _signal(ranks, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return [rank.returncode for rank in ranks]


def _signal(ranks: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(number)


if __name__ == "__main__":
    run_command(main, tear_down=False)  # a thread is reading the standard input
