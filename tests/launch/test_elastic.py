"""`bilm pretrain --restarts` with real ranks: lost ranks, and machines that leave and return.

The machines are loopback addresses. A program that replaces ssh runs commands here, and fails
for a machine that is marked as lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bilm.errors import LOST_RANK_EXIT_CODE, STOPPED_EXIT_CODE, USER_ERROR_EXIT_CODE
from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import (
    STARTED,
    command_for,
    environment,
    events,
    losses,
    tree_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]

SSH = """#!/bin/bash
while [ "$1" = -o ]; do shift 2; done
if [ -e "{lost}/$1" ]; then exit 255; fi
exec bash -c "$2"
"""

DEADLINE_SECONDS = 200

# Steps that take long enough, and a learning rate at which rounding errors do not grow.
SLOW = (
    "deepspeed.train_batch_size=64",
    "data.unroll_steps=20",
    "train.checkpoints.every_steps=10",
    "train.optimizer.learning_rate=0.01",
)
LONG = ("train.num_epochs=1000", "train.max_steps=3000")  # longer than any test


@dataclass(frozen=True)
class Cluster:
    """Two machines with one rank each."""

    directory: Path

    @classmethod
    def create(cls, directory: Path) -> Cluster:
        for name in ("bin", "lost"):
            (directory / name).mkdir()
        ssh = directory / "bin" / "ssh"
        ssh.write_text(SSH.format(lost=directory / "lost"))
        ssh.chmod(0o755)
        (directory / "hosts").write_text("127.0.0.2 slots=1\n127.0.0.3 slots=1\n")
        return cls(directory)

    def start(self, corpus: Path, output: Path, *flags: str) -> subprocess.Popen[bytes]:
        own = [f"--hostfile={self.directory / 'hosts'}", "--probe-seconds=0.5", *flags]
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        with open(self.directory / "log", "wb") as log:
            process = subprocess.Popen(
                [*command_for(corpus, output, *SLOW, *LONG, ranks=None), *own],
                env=environment() | {"PATH": path},
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        STARTED.append(process)
        return process

    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8")


def ranks_of(process: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """Return the ranks below `process`, by "rank/number of ranks"."""
    found = {}
    for child in tree_of(process)[1:]:
        try:
            if "bilm.commands.pretrain" in child.cmdline():
                variables = child.environ()
                found[f"{variables['RANK']}/{variables['WORLD_SIZE']}"] = child
        except (psutil.Error, KeyError):
            continue
    return found


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, "it has exited"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_new_steps(output: Path, number: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until `number` steps follow the last one; resumed runs remove those after it."""
    goal = len(events(output, "train")) + number
    wait_until(lambda: len(events(output, "train")) >= goal, process)


def test_shrinks_after_lost_machine_and_grows_when_it_returns(corpus: Path, tmp_path: Path) -> None:
    cluster, output = Cluster.create(tmp_path), tmp_path / "run"
    process = cluster.start(corpus, output, "--restarts=1")
    wait_for_new_steps(output, 12, process)
    (tmp_path / "lost" / "127.0.0.3").touch()
    ranks_of(process)["1/2"].parent().kill()  # and the rank with it
    wait_until(lambda: "0/1" in ranks_of(process), process)
    wait_for_new_steps(output, 5, process)
    (tmp_path / "lost" / "127.0.0.3").unlink()
    wait_until(lambda: "1/2" in ranks_of(process), process)
    wait_for_new_steps(output, 3, process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=DEADLINE_SECONDS) == STOPPED_EXIT_CODE, cluster.log()
    assert cluster.log().count("resuming from") == 2
    curve, unbroken = losses(output), tmp_path / "unbroken" / "run"
    train_forked(corpus, unbroken, *SLOW, f"train.max_steps={len(curve)}")
    for ours, expected in zip(curve, losses(unbroken), strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)


def test_restarts_after_killed_rank_and_saves_if_killed_itself(
    corpus: Path, tmp_path: Path
) -> None:
    cluster, output = Cluster.create(tmp_path), tmp_path / "run"
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    process = cluster.start(corpus, output, "--restarts=1")
    wait_for_new_steps(output, 2, process)
    ranks = ranks_of(process)
    ranks["1/2"].kill()
    psutil.wait_procs(list(ranks.values()), timeout=DEADLINE_SECONDS)
    wait_for_new_steps(output, 2, process)
    assert "restart 1 of 1" in cluster.log()
    tree = tree_of(process)
    process.kill()
    _, alive = psutil.wait_procs(tree, timeout=DEADLINE_SECONDS)
    assert not alive
    assert (output / "checkpoints" / f"step-{len(losses(output)):08d}").is_dir()


def test_ends_at_the_limit_of_restarts(corpus: Path, tmp_path: Path) -> None:
    cluster, output = Cluster.create(tmp_path), tmp_path / "run"
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    process = cluster.start(corpus, output, "--restarts=0")
    wait_for_new_steps(output, 1, process)
    ranks_of(process)["0/1"].kill()
    assert process.wait(timeout=DEADLINE_SECONDS) == LOST_RANK_EXIT_CODE, cluster.log()


def test_rejects_ranks_that_cannot_divide_the_batch(corpus: Path, tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path)
    (tmp_path / "hosts").write_text("127.0.0.2 slots=3\n")
    process = cluster.start(corpus, tmp_path / "run", "--restarts=5")
    assert process.wait(timeout=DEADLINE_SECONDS) == USER_ERROR_EXIT_CODE
    assert "cannot be divided" in cluster.log()
    assert not (tmp_path / "run").exists()


def test_ends_at_error_in_configuration(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path)
    process = cluster.start(tmp_path / "missing", tmp_path / "run", "--restarts=5")
    assert process.wait(timeout=DEADLINE_SECONDS) == USER_ERROR_EXIT_CODE, cluster.log()
    assert cluster.log().count("starting on") == 1
