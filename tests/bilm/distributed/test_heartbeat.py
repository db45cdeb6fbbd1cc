"""Heartbeats between real processes, which are killed and stopped."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import DistBackendError, DistNetworkError

from bilm.distributed.heartbeat import _is_failed_collective
from bilm.errors import LOST_RANK_EXIT_CODE
from tests.conftest import ROOT

RANK = """
import json, logging, os, sys, time
from pathlib import Path
from bilm.distributed.heartbeat import Heartbeat

rank, world, directory = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
logging.basicConfig(format="%(message)s")

def broadcast(value):
    if rank == 0:
        (directory / "t").write_text(json.dumps(value))
        os.rename(directory / "t", directory / "value")
        return value
    while not (directory / "value").exists():
        time.sleep(0.01)
    return json.loads((directory / "value").read_text())

# Interpreters start at different times on a busy machine, but the timeout is short.
(directory / f"started-{rank}").touch()
while len(list(directory.glob("started-*"))) < world:
    time.sleep(0.01)

heartbeat = Heartbeat(rank, world, float(sys.argv[4]), broadcast)
heartbeat.note_step(6)
print("ready", flush=True)
sys.stdin.readline()  # until the test closes it
heartbeat.stop()
"""
Start = Callable[..., list[subprocess.Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    processes: list[subprocess.Popen[str]] = []

    def start(world: int, timeout_seconds: float = 2.0) -> list[subprocess.Popen[str]]:
        for rank in range(world):
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    RANK,
                    str(rank),
                    str(world),
                    str(tmp_path),
                    str(timeout_seconds),
                ],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return processes

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 2])
def test_names_lost_rank_and_ends_all_ranks(
    number: signal.Signals, victim: int, start: Start
) -> None:
    ranks = start(3)
    ranks[victim].send_signal(number)
    for process in ranks:
        process.wait(timeout=30)  # although their stdin is still open
    logs = {rank: process.communicate()[1] for rank, process in enumerate(ranks)}
    for rank, process in enumerate(ranks):
        expected = -signal.SIGKILL if rank == victim else LOST_RANK_EXIT_CODE
        assert process.returncode == expected, logs
    reporter = 0 if victim else 1
    killed = number == signal.SIGKILL
    reason = "has exited or was killed" if killed else "has sent no heartbeat for 2 s"
    where = f"rank {victim} (process {ranks[victim].pid} on {socket.gethostname()})"
    assert f"error: {where} {reason}, in step 7." in logs[reporter]
    assert [rank for rank in logs if "error" in logs[rank]] == [reporter]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_ignores_rank_that_stops_cleanly(order: tuple[int, ...], start: Start) -> None:
    ranks = start(3, timeout_seconds=60.0)
    for rank in order:
        _, errors = ranks[rank].communicate("\n", timeout=30)
        assert (ranks[rank].returncode, errors) == (0, "")


def test_survives_stop_and_continue_of_all_ranks(start: Start) -> None:
    """As with Ctrl-Z and fg: a rank counts only intervals in which it runs itself."""
    ranks = start(2)
    for process in ranks:
        process.send_signal(signal.SIGSTOP)
    time.sleep(3)  # longer than the timeout
    for process in ranks:
        process.send_signal(signal.SIGCONT)
    time.sleep(1)
    for process in ranks:
        _, errors = process.communicate("\n", timeout=30)
        assert (process.returncode, errors) == (0, "")


NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3690, {}, NCCL version 2.27.5"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"), True),
        (RuntimeError("Application timeout caused pair closure"), True),
        (DistNetworkError("failed to recv, got 0 bytes"), True),
        (DistBackendError(NCCL.format("remote process exited") + "\nncclRemoteError: "), True),
        (DistBackendError(NCCL.format("unhandled system error") + "\nncclSystemError: "), True),
        (RuntimeError(NCCL.format("x") + "\nncclRemoteError: A call failed"), True),
        (RuntimeError("NCCL communicator was aborted on rank 0."), True),
        (RuntimeError("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL"), True),
        (DistBackendError(NCCL.format("invalid usage") + "\nncclInvalidUsage"), False),
        (DistBackendError(NCCL.format("unhandled cuda error")), False),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_recognizes_failures_of_other_ranks(error: RuntimeError, expected: bool) -> None:
    assert _is_failed_collective(error) is expected
