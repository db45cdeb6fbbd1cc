"""Real runs under the variables of other launchers than `deepspeed`, and with killed ranks."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bilm.distributed.launchers import read_launch
from bilm.errors import USER_ERROR_EXIT_CODE
from tests.conftest import ROOT
from tests.launch.launching import (
    STARTED,
    TIMEOUT_SECONDS,
    command_for,
    environment,
    free_port,
    losses,
    start,
    tree_of,
    wait_for_step,
    wait_gone,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]


PORT = free_port()


def plain(rank: int) -> dict[str, str]:
    """Return the variables that an operator of Kubernetes sets."""
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(PORT)}
    return {"RANK": str(rank), "WORLD_SIZE": "2", **address}


def srun(rank: int) -> dict[str, str]:
    """Return the variables of a task of `srun` in a job whose id gives a free port."""
    for job in itertools.count(PORT):
        variables = srun_of(job, rank)
        with contextlib.suppress(OSError):
            socket.create_server(("", read_launch(variables).port)).close()
            return variables
    raise AssertionError


def srun_of(job: int, rank: int) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": "0",
    }


def start_tasks(
    variables: list[dict[str, str]], corpus: Path, output: Path
) -> list[subprocess.Popen[str]]:
    command = command_for(corpus, output, "train.max_steps=2", ranks=None)
    return [
        subprocess.Popen(
            command,
            env=environment() | own,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for own in variables
    ]


@pytest.mark.parametrize("launcher", [plain, srun])
def test_trains_without_own_launcher(
    launcher: Callable[[int], dict[str, str]], corpus: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    tasks = start_tasks([launcher(rank) for rank in range(2)], corpus, output)
    for task in tasks:
        _, errors = task.communicate(timeout=TIMEOUT_SECONDS)
        assert task.returncode == 0, errors
        assert "Traceback" not in errors
    assert len(losses(output)) == 2


def test_rejects_tasks_without_address(corpus: Path, tmp_path: Path) -> None:
    variables = [srun_of(1, rank) | {"SLURM_STEP_NODELIST": ""} for rank in range(2)]
    for task in start_tasks(variables, corpus, tmp_path / "run"):
        _, errors = task.communicate(timeout=TIMEOUT_SECONDS)
        assert task.returncode == USER_ERROR_EXIT_CODE, errors
        assert "Set MASTER_ADDR" in errors
    assert not (tmp_path / "run").exists()


def test_torchrun_resumes_after_killed_rank(corpus: Path, tmp_path: Path) -> None:
    output, steps = tmp_path / "run", 80
    script = command_for(corpus, output, f"train.max_steps={steps}", ranks=None)[1:]
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [*torchrun, "--nproc-per-node=2", "--max-restarts=1", *script],
            env=environment(),
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    STARTED.append(process)
    wait_for_step(output, 5)
    for child in tree_of(process)[1:]:
        if child.environ().get("RANK") == "1":
            child.kill()
    code = process.wait(timeout=TIMEOUT_SECONDS)
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert code == 0, text
    assert "resuming" in text
    assert len(losses(output)) == steps


def test_hangup_of_deepspeed_saves_and_ends_all_ranks(corpus: Path, tmp_path: Path) -> None:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("the tests were started by nohup, and so would be the run")
    output = tmp_path / "run"
    process = start(corpus, output, "train.max_steps=100000", ranks=2)
    wait_for_step(output, 2)
    tree = tree_of(process)
    os.kill(process.pid, signal.SIGHUP)
    process.wait(timeout=60)
    wait_gone([one for one in tree if one.pid != process.pid])
    step = len(losses(output))
    assert (output / "checkpoints" / f"step-{step:08d}").is_dir()
