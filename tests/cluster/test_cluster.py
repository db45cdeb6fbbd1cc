"""Two simulated machines, each with one rank: the short version of `make cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import BASIC_PROGRAMS, Machine, connect, missing
from tests.cluster.page import END, START, with_table
from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import (
    build_demo_corpus,
    command_for,
    environment,
    events,
    losses,
)

TIMEOUT_SECONDS = 10  # train.timeout_seconds, at its minimum
ADDRESSES = {"first": "10.78.0.1", "second": "10.78.0.2"}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    lacks = missing(BASIC_PROGRAMS)
    if lacks:
        pytest.skip(f"simulated machines need {', '.join(lacks)}")
    hosts = tmp_path / "hosts"
    named = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    hosts.write_text(f"127.0.0.1 localhost\n{named}")
    started: list[Machine] = []
    try:
        try:
            for name, address in ADDRESSES.items():
                started.append(Machine(name, address, hosts))
            connect(*started)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"this system does not allow namespaces: {error}")
        yield started
    finally:
        for machine in started:
            machine.close()


def start_ranks(
    machines: list[Machine], command: list[str], logs: Path
) -> list[subprocess.Popen[bytes]]:
    """Start one rank per machine, with the variables that an operator of Kubernetes sets."""
    ranks = []
    for rank, machine in enumerate(machines):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "first"}
        with (logs / f"{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                machine.enter(*command, cwd=ROOT),
                env=environment() | own,
                stdout=log,
                stderr=log,
            )
        ranks.append(process)
    return ranks


def wait_for_ranks(ranks: list[subprocess.Popen[bytes]], logs: Path, seconds: float) -> list[int]:
    codes = [rank.wait(timeout=seconds) for rank in ranks]
    for log in logs.glob("*.log"):
        assert "Traceback" not in log.read_text(), log.read_text()
    return codes


@pytest.mark.slow
@pytest.mark.launch
def test_two_machines_train_like_one_and_detect_lost_link(
    machines: list[Machine], tmp_path: Path
) -> None:
    corpus = build_demo_corpus(tmp_path / "demo")
    one, two = tmp_path / "one" / "run", tmp_path / "two" / "run"
    train_forked(corpus, one)
    settings = ("train.max_steps=100000", f"train.timeout_seconds={TIMEOUT_SECONDS}")
    ranks = start_ranks(machines, command_for(corpus, two, *settings, ranks=None), tmp_path)
    deadline = time.monotonic() + 120
    while len(events(two, "train")) < len(losses(one)):
        assert all(rank.poll() is None for rank in ranks), (tmp_path / "0.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    machines[0].configure("ip", "link", "set", "eth0", "down")
    start = time.monotonic()
    assert wait_for_ranks(ranks, tmp_path, 120) == [4, 4]
    assert time.monotonic() - start < 4 * TIMEOUT_SECONDS  # twice as long on a busy machine
    for rank in (0, 1):
        assert f"rank {1 - rank} (process" in (tmp_path / f"{rank}.log").read_text()
    for expected, found in zip(losses(one), losses(two), strict=False):
        assert found == pytest.approx(expected, abs=1e-5)


def test_writes_table_between_marks() -> None:
    page = f"before\n\n{START}\n\nan old table\n\n{END}\n\nafter\n"
    row = {"scenario": "`srun`", "what": "trained", "figure": "", "seconds": 9, "passed": True}
    written = with_table(page, [row | {"date": "2020-01-01"}])
    assert written.startswith("before\n")
    assert written.endswith(f"{END}\n\nafter\n")
    assert "| `srun` | trained |" in written
    assert "an old table" not in written
    assert with_table(written, [row | {"date": "2020-01-01"}]) == written


def test_rejects_machine_without_programs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster"],
        env={**os.environ, "PATH": "/nonexistent"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "error: this machine lacks" in done.stderr


def test_machines_end_with_their_process(tmp_path: Path) -> None:
    lacks = missing(BASIC_PROGRAMS)
    if lacks:
        pytest.skip(f"simulated machines need {', '.join(lacks)}")
    code = (
        "import sys, time; from pathlib import Path; from tests.cluster.machines import Machine\n"
        "print(Machine('one', '10.78.0.1', Path('/etc/hosts')).init.pid, flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    init = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not init:
        pytest.skip("this system does not allow namespaces")
    deadline = time.monotonic() + 60
    while Path(f"/proc/{init}/exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
