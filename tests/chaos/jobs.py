"""Whole jobs, and how they are ended: by id, in bounded time."""

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
    "model.dropout=0.2",  # so that its randomness is restored too
    f"train.checkpoints.every_steps={SAVE_EVERY}",
    "train.evaluation.every_steps=40",
    "train.log.histograms_every_steps=null",
)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole job at once, as a night's power cut does."""
    processes = tree_of(process) if process.poll() is None else []
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(timeout=SECONDS)
    wait_gone(processes)


def last_step(output: Path) -> int:
    """The last step that the run has written down."""
    return max((line["step"] for line in events(output, "train")), default=0)


def newest_step(output: Path) -> int:
    """The step of the newest whole checkpoint; 0 if there is none."""
    newest = CheckpointStore(output / "checkpoints").newest()
    return 0 if newest is None else newest.step


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], pause: float = 0.01
) -> bool:
    """Until the condition holds (True), or the job has ended (False)."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(pause)
    raise AssertionError(f"neither that nor an end in {SECONDS} s")


def is_saving(output: Path) -> bool:
    """Whether a checkpoint is being written just now."""
    return any((output / "checkpoints").glob(".step-*"))


def left_over(processes: list[psutil.Process]) -> list[int]:
    """Processes that are still there, zombies aside."""
    return [p.pid for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
