"""Ranks that join through a real store, beside processes of other jobs and of earlier attempts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from bilm.errors import USER_ERROR_EXIT_CODE
from tests.conftest import ROOT

RANK = """
import sys, torch
from bilm.distributed.ranks import Timeouts, join_ranks
from bilm.errors import run_command

def main():
    for _ in range(2):  # a process may train more than once
        with join_ranks(Timeouts(300, 600), on_cpu=True, job=sys.argv[1]) as ranks:
            print(ranks.gather(torch.tensor([ranks.rank])).flatten().tolist(), flush=True)
            sys.stdin.readline()  # until the test closes it

run_command(main, tear_down=False)
"""
Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def start(port: int) -> Iterator[Start]:
    processes: list[Process] = []

    def start(rank: int, job: str = "job", **variables: str) -> Process:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, job],
            cwd=ROOT,
            env=environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def assert_joined(*ranks: Process) -> None:
    for process in ranks:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "[0, 1]\n", process.communicate(timeout=400)


def assert_finishes(*ranks: Process) -> None:
    """End both runs of each process."""
    for process in ranks:
        assert process.stdin is not None
        process.stdin.write("\n\n")
        process.stdin.flush()
    for process in ranks:
        out, errors = process.communicate(timeout=400)
        assert (process.returncode, out) == (0, "[0, 1]\n"), errors


def assert_rejected(process: Process, message: str) -> None:
    _, errors = process.communicate(timeout=400)
    assert process.returncode == USER_ERROR_EXIT_CODE, errors
    assert message in errors
    assert "Traceback" not in errors


def test_second_job_on_the_same_port_is_rejected(start: Start) -> None:
    first = start(0, "first")
    early = start(1, "second")  # while rank 0 of the first job waits for its own rank 1
    assert_rejected(early, "belongs to another run")
    first_peer = start(1, "first")
    assert_joined(first, first_peer)
    late, host = start(1, "first"), start(0, "second")
    assert_rejected(late, "the run that listens there is complete")
    assert_rejected(host, "is in use, probably by another run on this machine. Pass a free one")
    assert_finishes(first, first_peer)


def test_rejects_rank_that_was_started_twice(start: Start) -> None:
    host, peers = start(0), [start(1), start(1)]
    for peer in peers:
        assert peer.stdin is not None
        peer.stdin.write("\n\n")
        peer.stdin.flush()
    assert_joined(host)
    deadline = time.monotonic() + 400
    while all(peer.poll() is None for peer in peers):  # the second may start long after the first
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert host.stdin is not None
    host.stdin.write("\n\n")
    host.stdin.flush()
    codes = sorted(peer.wait(timeout=400) for peer in peers)
    assert codes == [0, USER_ERROR_EXIT_CODE]


def test_rejoins_through_the_store_of_an_agent(port: int, start: Start) -> None:
    """The agent of torchrun keeps its store when it restarts the ranks."""
    store = TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "a"}
    killed = [start(rank, **agent) for rank in range(2)]
    assert_joined(*killed)
    for process in killed:
        process.send_signal(signal.SIGKILL)
        process.wait()
    restarted = [start(rank, **agent) for rank in range(2)]
    assert_joined(*restarted)
    assert_finishes(*restarted)
    del store


@pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")
def test_connects_although_rank_0_has_another_address_of_itself(start: Start) -> None:
    """As with `127.0.1.1 host` in /etc/hosts of rank 0, or MASTER_ADDR=localhost there."""
    with socket.create_server(("", 0)) as free:
        heartbeat_port = str(free.getsockname()[1])
    host = start(0, MASTER_ADDR="localhost", BILM_HEARTBEAT_PORT=heartbeat_port)
    peer = start(1, MASTER_ADDR="127.0.0.2")
    assert_joined(host, peer)
    assert_finishes(host, peer)


def test_rejects_used_heartbeat_port_once(start: Start) -> None:
    with socket.create_server(("", 0)) as other:
        used = str(other.getsockname()[1])
        host, peer = start(0, BILM_HEARTBEAT_PORT=used), start(1)
        assert_rejected(host, f"cannot listen on port {used}, which is set by BILM_HEARTBEAT_PORT")
        assert_rejected(peer, "")
