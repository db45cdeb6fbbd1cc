"""Wait for jobs, kill them by process id, and read their progress."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bilm.training.checkpoints import CheckpointStore
from tests.launch.launching import events, tree_of, wait_gone

SECONDS = 120
SAVE_EVERY = 10
SETTINGS = (
    "model.dropout=0.2",  # its randomness must be restored too
    f"train.checkpoints.every_steps={SAVE_EVERY}",
    "train.evaluation.every_steps=40",
    "train.log.histograms_every_steps=null",
)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the whole job at once, as in a power failure."""
    processes = tree_of(process) if process.poll() is None else []
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(timeout=SECONDS)
    wait_gone(processes)


def last_step(output: Path) -> int:
    """Return the last step in metrics.jsonl."""
    return max((line["step"] for line in events(output, "train")), default=0)


def newest_step(output: Path) -> int:
    """Return the step of the latest intact checkpoint; 0 if there is none."""
    newest = CheckpointStore(output / "checkpoints").newest()
    return 0 if newest is None else newest.record.step


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], pause: float = 0.01
) -> bool:
    """Wait until the condition is true (return True) or the job has exited (return False)."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(pause)
    raise AssertionError(f"the job neither met the condition nor exited within {SECONDS} s")


def is_saving(output: Path) -> bool:
    """Return whether a checkpoint is being written at the moment."""
    return any((output / "checkpoints").glob(".step-*"))


def still_running(processes: list[psutil.Process]) -> list[int]:
    """Return the ids of the processes that are running, without zombies."""
    return [p.pid for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
