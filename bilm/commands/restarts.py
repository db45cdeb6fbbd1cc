"""`bilm pretrain --restarts`: start the ranks of a run, and restart them after one was lost.

After exit code 4 the run is restarted, up to the given number of times, on the machines that
answer. The number of ranks must divide the batch, so some machines may stay idle. If more machines
can be used later, the run is stopped, which saves a checkpoint, and restarted on them. This does
not count as a restart. All other exit codes end the run.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bilm.corpus.global_batch import RankShare
from bilm.distributed.machine_ranks import MachineRanks, combine_exit_codes
from bilm.distributed.machines import (
    Machine,
    address_of_first,
    exported_variables,
    find_answering,
    start_module,
)
from bilm.distributed.signals import StopRequest
from bilm.errors import LOST_RANK_EXIT_CODE, STOPPED_EXIT_CODE, ConfigError, LostRankError
from bilm.training.config import Config

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2

_RETURN_SECONDS = 600.0  # how long to wait for a machine if none answers

_END_SECONDS = 60.0  # how long the other machines may run after one has failed

_PORTS = range(12_000, 32_000)  # below those that Linux gives to outgoing connections


@dataclass(frozen=True)
class RestartOptions:
    """The machines of a run, how often it may be restarted, and the flags of its ranks."""

    machines: tuple[Machine, ...]
    num_restarts: int
    probe_seconds: float
    flags: tuple[str, ...]
    first_flags: tuple[str, ...] = ()  # only at the first start


def run_with_restarts(config: Config, options: RestartOptions) -> int:
    """Train until the run ends for another reason than a lost rank; return its exit code."""
    usable_of(options.machines, lambda world: fits(config, world))  # before anything is started
    stop = StopRequest()
    with stop.listen():
        return _Restarts(config, options, stop).run()


def fits(config: Config, world: int) -> bool:
    """Return whether the rows of the batch and of the evaluation can be divided among the ranks."""
    section = config.deepspeed
    share = RankShare(0, world, section.gradient_accumulation_steps)
    is_divisible = RankShare(0, world).divides(config.train.evaluation.rows)
    return share.divides(section.train_batch_size) and is_divisible


def usable_of(machines: Sequence[Machine], fits: Callable[[int], bool]) -> tuple[Machine, ...]:
    """Return the longest beginning of `machines` whose ranks can divide the batch."""
    for count in range(len(machines), 0, -1):
        if fits(sum(machine.slots for machine in machines[:count])):
            return tuple(machines[:count])
    raise ConfigError(
        f"the batch cannot be divided among the ranks of {', '.join(m.host for m in machines)}, or "
        "of some of these machines in this order; both deepspeed.train_batch_size and "
        "train.evaluation.rows must be multiples of the number of ranks. Change `slots` or these "
        "values"
    )


class _Restarts:
    def __init__(self, config: Config, options: RestartOptions, stop: StopRequest) -> None:
        self._options, self._stop = options, stop
        self._fits = lambda world: fits(config, world)

    def run(self) -> int:
        flags = (*self._options.flags, *self._options.first_flags)
        num_restarts = 0
        while True:
            machines = self._wait_for_machines()
            code, is_growing = self._run_once(machines, flags)
            is_resumable = code in (LOST_RANK_EXIT_CODE, STOPPED_EXIT_CODE)
            if is_resumable and self._stop.reason is not None:
                return STOPPED_EXIT_CODE
            if is_growing and is_resumable:
                logger.warning("restarting, because more machines can be used")
            elif code != LOST_RANK_EXIT_CODE:
                return code
            elif num_restarts == self._options.num_restarts:
                logger.warning("not restarted: --restarts is %d", num_restarts)
                return code
            else:
                num_restarts += 1
                logger.warning("restart %d of %d", num_restarts, self._options.num_restarts)
            flags = self._options.flags

    def _wait_for_machines(self) -> tuple[Machine, ...]:
        """Return the machines to use, as soon as there are any."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while self._stop.reason is None and time.monotonic() < deadline:
            with suppress(ConfigError):
                return usable_of(find_answering(self._options.machines), self._fits)
            time.sleep(_POLL_SECONDS)
        hosts = ", ".join(machine.host for machine in self._options.machines)
        raise LostRankError(
            f"none of the machines {hosts}, or not enough for the batch, can run this Python in "
            "this directory through ssh. Check `ssh HOST true` and shared directories, and run the "
            "same command to resume"
        )

    def _could_use_more(self, used: tuple[Machine, ...]) -> bool:
        """Return whether, together with those that are not in use, more ranks are possible."""
        returned = find_answering([m for m in self._options.machines if m not in used])
        try:
            both = [m for m in self._options.machines if m in used + returned]
            usable = usable_of(both, self._fits)
        except ConfigError:  # these machines only divide the batch in another order
            return False
        return sum(machine.slots for machine in usable) > sum(machine.slots for machine in used)

    def _run_once(self, machines: tuple[Machine, ...], flags: tuple[str, ...]) -> tuple[int, bool]:
        """Return the exit code, and whether the run was stopped because there are more machines."""
        idle = [m.host for m in self._options.machines if m not in machines]
        logger.info(
            "starting on %s%s",
            ", ".join(f"{m.host} ({m.slots})" for m in machines),
            f"; without {', '.join(idle)}" if idle else "",
        )
        processes = _start(machines, flags)
        is_growing, end, probe = False, None, time.monotonic() + self._options.probe_seconds
        while any(process.poll() is None for process in processes):
            now = time.monotonic()
            if now > probe and len(machines) < len(self._options.machines):
                is_growing = is_growing or self._could_use_more(machines)
                probe = time.monotonic() + self._options.probe_seconds
            has_failed = any(p.poll() not in (None, 0, STOPPED_EXIT_CODE) for p in processes)
            end = now + _END_SECONDS if has_failed and end is None else end
            if is_growing or self._stop.reason is not None or (end is not None and now > end):
                _close_inputs(processes)
            time.sleep(_POLL_SECONDS)
        _close_inputs(processes)
        return combine_exit_codes(process.returncode for process in processes), is_growing


def _start(machines: tuple[Machine, ...], flags: tuple[str, ...]) -> list[subprocess.Popen[str]]:
    """Start the ranks of each machine, with a new port and a new job id."""
    address, world = address_of_first(machines), sum(machine.slots for machine in machines)
    port = int(os.environ.get("MASTER_PORT") or secrets.choice(_PORTS))
    environment = {**exported_variables(), "BILM_JOB_ID": secrets.token_hex(8)}
    processes: list[subprocess.Popen[str]] = []
    first_rank = 0
    for machine in machines:
        job = MachineRanks(first_rank, machine.slots, world, address, port, flags, environment)
        process = start_module(machine, "bilm.distributed.machine_ranks")
        processes.append(process)
        assert process.stdin is not None
        with suppress(OSError):  # if it has exited already
            process.stdin.write(job.to_line())
            process.stdin.flush()
        first_rank += machine.slots
    return processes


def _close_inputs(processes: list[subprocess.Popen[str]]) -> None:
    """Stop the ranks of all machines; calling this again has no effect."""
    for process in processes:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
