"""Heartbeats between ranks, which detect a lost rank and name it.

Once per second every other rank sends rank 0 a heartbeat, and rank 0 sends one to each of them. A
rank is lost if its connection is broken, or if it has sent nothing for the timeout (stopped,
swapped out, disconnected). The lost rank and its step are logged, its process is killed if it runs
on this machine, and all ranks exit. A failed collective alone would not name the rank, and a
stopped process would survive it.

Cost: one small message per rank per second.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.distributed import DistError

from bilm.distributed.links import Link, connect, this_machine
from bilm.errors import LOST_RANK_EXIT_CODE, BilmError, LostRankError, PeerError

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 1.0

_VERDICT_SECONDS = 5.0  # after a failed collective: how long to wait for the name of the lost rank

# Parts of the messages of gloo and NCCL about a collective that failed because of another rank.
# A watchdog reports a collective that has taken longer than the timeout of the group.
_FAILED_COLLECTIVE = (
    "gloo",
    "Application timeout caused pair closure",  # gloo's timeout, if packets are dropped
    "ncclRemoteError",
    "ncclSystemError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)

# Errors of NCCL that the reporting rank has caused itself, which are raised as the same type.
_OWN_ERROR = (
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclUnhandledCudaError",
    "unhandled cuda error",
    "invalid usage",
)


class Heartbeat:
    """Sends this rank's heartbeats, and checks those of the ranks it is connected to."""

    def __init__(
        self, rank: int, world: int, timeout_seconds: float, broadcast: Callable[[Any], Any]
    ) -> None:
        """Connect the ranks; all ranks must call this at the same time.

        `broadcast` returns rank 0's JSON value on every rank.
        """
        self._rank, self._step, self._verdict = rank, 0, ""
        self._interval = min(_INTERVAL_SECONDS, timeout_seconds / 10)
        self._max_silent = max(2, round(timeout_seconds / self._interval))
        self._is_stopped = threading.Event()
        self._links = connect(rank, world, timeout_seconds, broadcast)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def note_step(self, step: int) -> None:
        """Record the number of finished steps."""
        self._step = step

    def stop(self) -> None:
        """Stop cleanly, so that other ranks do not report this one as lost."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        self._thread.join()
        for link in self._links.values():
            link.send({"leaving": True})
            link.close()

    def explain(self, error: RuntimeError) -> BilmError | None:
        """Return the cause of a failed collective; None if `error` is not from a collective."""
        if not _is_failed_collective(error):
            return None
        deadline = time.monotonic() + _VERDICT_SECONDS
        while time.monotonic() < deadline:
            if self._verdict:
                return LostRankError(self._verdict)
            if any(link.is_leaving for link in self._links.values()):
                return PeerError("another rank has exited and printed the reason")
            time.sleep(0.05)
        first = str(error).splitlines()[0]
        return LostRankError(
            f"rank {self._rank} lost its connection to the other ranks in step "
            f"{self._step + 1}: {first}"
        )

    def _beat(self) -> None:
        while not self._is_stopped.wait(self._interval):
            for link in self._links.values():
                link.send({})
            for rank, link in self._links.items():
                reason = self._check(link)
                if reason and not self._is_stopped.is_set():
                    self._end_run(rank, link, reason)

    def _check(self, link: Link) -> str:
        """Return why the rank at the other end is lost; an empty string if it is not.

        Silence is counted in intervals of this process, none of which pass while it is stopped.
        """
        messages = link.receive()
        link.silent = 0 if messages else link.silent + 1
        for message in messages:
            if isinstance(message.get("verdict"), str):
                self._verdict = message["verdict"]  # rank 0 has logged it
                _exit()
            link.is_leaving = link.is_leaving or "leaving" in message
        if link.is_leaving:
            return ""
        if link.is_closed:
            return "has exited or was killed"
        if link.silent >= self._max_silent:
            return f"has sent no heartbeat for {link.silent * self._interval:.0f} s"
        return ""

    def _end_run(self, rank: int, link: Link, reason: str) -> None:
        """Log the lost rank, kill its process if it runs on this machine, and exit."""
        self._verdict = (
            f"rank {rank} (process {link.process} on {link.machine[0]}) {reason}, in step "
            f"{self._step + 1}. The run stops; run the same command to resume from the latest "
            "checkpoint"
        )
        if self._rank == 0 or (rank == 0 and self._rank == 1):
            logger.error("error: %s", self._verdict)
        else:
            time.sleep(3 * self._interval)  # rank 1 must detect the same loss first
        if link.machine == this_machine():
            try:
                os.kill(link.process, signal.SIGKILL)
            except OSError:
                pass  # it has already exited
        for other in self._links.values():
            other.send({"verdict": self._verdict})
        _exit()


def _is_failed_collective(error: RuntimeError) -> bool:
    """Return whether another rank, or the network, may be the cause of `error`."""
    text = str(error)
    if any(part in text for part in _FAILED_COLLECTIVE):
        return True
    return isinstance(error, DistError) and not any(part in text for part in _OWN_ERROR)


def _exit() -> None:
    """Exit, after the main thread has had time to print its own error."""
    time.sleep(1.0)
    os._exit(LOST_RANK_EXIT_CODE)
