"""Ranks that only watch each other: real processes, killed and stopped."""

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

from bilm.errors import LOST_RANK_EXIT_CODE
from tests.conftest import ROOT

RANK = """
import json, logging, os, sys, time
from pathlib import Path
from bilm.distributed.heartbeat import Watch

rank, world, place = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
logging.basicConfig(format="%(message)s")

def agree(value):
    if rank == 0:
        (place / "t").write_text(json.dumps(value))
        os.rename(place / "t", place / "agreed")
        return value
    while not (place / "agreed").exists():
        time.sleep(0.01)
    return json.loads((place / "agreed").read_text())

watch = Watch(rank, world, 2.0, agree)
watch.note_step(6)
print("ready", flush=True)
sys.stdin.readline()  # until the test closes it
watch.stop()
"""
Start = Callable[[int], list[subprocess.Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    begun: list[subprocess.Popen[str]] = []

    def start(world: int) -> list[subprocess.Popen[str]]:
        for rank in range(world):
            process = subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), str(world), str(tmp_path)],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            begun.append(process)
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return begun

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 2])
def test_the_lost_rank_is_named_and_nobody_stays(
    number: signal.Signals, victim: int, start: Start
) -> None:
    ranks = start(3)
    ranks[victim].send_signal(number)
    for process in ranks:
        process.wait(timeout=30)  # nobody has closed their input
    said = {rank: process.communicate()[1] for rank, process in enumerate(ranks)}
    for rank, process in enumerate(ranks):
        expected = -signal.SIGKILL if rank == victim else LOST_RANK_EXIT_CODE
        assert process.returncode == expected, said
    speaker = 0 if victim else 1
    how = "is gone" if number == signal.SIGKILL else "has given no sign of life for 2 s"
    where = f"rank {victim} (process {ranks[victim].pid} on {socket.gethostname()})"
    assert f"error: {where} {how}, in step 7." in said[speaker]
    assert [rank for rank in said if "error" in said[rank]] == [speaker]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_who_leaves_in_order_is_not_missed(order: tuple[int, ...], start: Start) -> None:
    ranks = start(3)
    for rank in order:
        _, errors = ranks[rank].communicate("\n", timeout=30)
        assert (ranks[rank].returncode, errors) == (0, "")


def test_a_stop_of_all_is_not_a_loss(start: Start) -> None:
    """Ctrl-Z and fg: silence is counted by one's own beats."""
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
