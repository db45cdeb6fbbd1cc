"""The files in cluster/ and the Dockerfile: their syntax, and what their scripts do.

Programs of Slurm, and `python` in the script of the PyTorchJob, are replaced by short scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bilm.commands import pretrain
from bilm.distributed.machines import read_hostfile
from tests.conftest import ROOT

CLUSTER = ROOT / "cluster"
SLURM = CLUSTER / "slurm.sbatch"
TIMEOUT_SECONDS = 60


def container() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    tree = yaml.safe_load((CLUSTER / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (tree["apiVersion"], tree["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = tree["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]
    assert {replica["restartPolicy"] for replica in replicas.values()} == {"ExitCode"}
    pod = replicas["Worker"]["template"]["spec"]
    (found,) = pod["containers"]
    mounted = {mount["name"] for mount in found["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert found["name"] == "pytorch"
    return dict(found)


def write_program(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    (directory / name).chmod(0o755)


def with_path(directory: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def test_scripts_have_valid_syntax() -> None:
    subprocess.run(["bash", "-n", str(SLURM)], check=True, timeout=TIMEOUT_SECONDS)
    if shutil.which("shellcheck"):
        command = ["shellcheck", "--shell=bash", str(SLURM)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)


def test_container_runs_a_valid_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = container()
    assert "python launch/pretrain.py" in own["command"][2]
    arguments = [*own["args"], "--restarts=0", f"--hostfile={tmp_path}"]  # rejected after the rest
    monkeypatch.setattr(sys, "argv", ["pretrain", *arguments])
    monkeypatch.chdir(ROOT)
    with pytest.raises(pretrain.ConfigError, match="--hostfile"):
        pretrain.main()


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (2, 2), (4, 132), (75, 203), (137, 137)])
def test_container_exits_so_that_the_operator_restarts_it(
    code: int, expected: int, tmp_path: Path
) -> None:
    write_program(tmp_path, "python", f"exit {code}")
    command = [*container()["command"], "--config", "big"]
    done = subprocess.run(command, env=with_path(tmp_path), timeout=TIMEOUT_SECONDS)
    assert done.returncode == expected


def test_container_forwards_signal(tmp_path: Path) -> None:
    write_program(tmp_path, "python", "trap 'exit 75' TERM\necho ready\nsleep 60 & wait")
    with subprocess.Popen(
        container()["command"], env=with_path(tmp_path), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait(timeout=TIMEOUT_SECONDS) == 203


def slurm_environment(directory: Path) -> dict[str, str]:
    """Return the environment of a job on three nodes, and write the programs that it calls."""
    log = directory / "calls"
    for name in ("scontrol", "scancel"):
        write_program(directory, name, f'echo "{name} $*" >>{log}')
    write_program(directory, "squeue", "echo RUNNING")
    (directory / "python").symlink_to(sys.executable)
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_ON_NODE": "8"}
    return {**with_path(directory), **variables, "PYTHONPATH": str(ROOT)}


def run_job(environment: dict[str, str], *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SLURM), "configs/demo.json", *overrides],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"),
    [(0, 0, False), (2, 0, False), (4, 0, True), (75, 1, True), (137, 0, True), (4, 2, False)],
)
def test_job_passes_exit_code_on_and_is_requeued(
    code: int, restarts: int, requeued: bool, tmp_path: Path
) -> None:
    environment = slurm_environment(tmp_path)
    write_program(tmp_path, "srun", f'echo "srun $*" >>{tmp_path}/calls; exit {code}')
    limits = {"MAX_RESTARTS": "2", "SLURM_RESTART_COUNT": str(restarts)}
    done = run_job(environment | limits, "train.max_steps=5")
    assert done.returncode == code, done.stderr
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    assert ("scontrol requeue 7" in calls) == requeued
    # three nodes cannot share the 32 rows of the demo
    assert "--nodes=2 --ntasks=2" in calls
    assert "pretrain.py --config configs/demo.json train.max_steps=5" in calls


def test_forwarded_signal_does_not_reach_the_next_start(tmp_path: Path) -> None:
    environment = slurm_environment(tmp_path)
    number = tmp_path / "number"
    # scancel retries while the job is being requeued
    write_program(tmp_path, "scancel", f"echo $$ >{number}.new; mv {number}.new {number}; sleep 60")
    wait = f"while [ ! -e {number} ]; do sleep 0.1; done"
    write_program(tmp_path, "srun", f"kill -USR1 $PPID; {wait}; exit 75")
    run_job(environment)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{number.read_text().strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_job_forwards_signal_that_arrives_before_the_ranks(tmp_path: Path) -> None:
    environment = slurm_environment(tmp_path)
    # The step exists, but its ranks start only after the first signal was forwarded.
    ready = tmp_path / "forwarded"
    write_program(tmp_path, "scancel", f"touch {ready}")
    wait = f"while [ ! -e {ready} ]; do sleep 0.1; done"
    write_program(tmp_path, "srun", f"kill -USR1 $PPID; {wait}; exit 75")
    done = run_job(environment)
    assert done.returncode == 75, done.stderr
    assert "scontrol requeue 7" in (tmp_path / "calls").read_text(encoding="utf-8")


def test_job_copies_corpus_and_removes_the_copy(tmp_path: Path) -> None:
    environment = slurm_environment(tmp_path)
    script = f'echo "$*" >>{tmp_path}/calls; while [[ $1 == --* ]]; do shift; done'
    write_program(tmp_path, "srun", f'{script}; [ "$1" = python ] && exit 4; "$@"')
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "file").touch()
    local = {"LOCAL_DIRECTORY": str(tmp_path / "disk")}
    (tmp_path / "disk").mkdir()
    done = run_job(environment | local, f"data.corpus={tmp_path / 'corpus'}")
    assert done.returncode == 4, done.stderr
    copying, training, removing = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[:3]
    assert "cp -rL" in copying
    assert training.endswith(f"data.corpus={tmp_path}/disk/bilm-7")
    assert removing.endswith(f"rm -rf {tmp_path}/disk/bilm-7")
    assert not list((tmp_path / "disk").iterdir())


def test_hostfile_is_accepted_by_deepspeed_and_bilm() -> None:
    runner = pytest.importorskip("deepspeed.launcher.runner")
    pool = runner.fetch_hostfile(str(CLUSTER / "hostfile"))
    assert dict(pool) == {m.host: m.slots for m in read_hostfile(CLUSTER / "hostfile")}


def test_variables_are_in_the_form_that_deepspeed_reads() -> None:
    for line in (CLUSTER / "deepspeed_env").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[A-Z_]+=\S+", line)


def test_dockerfile_copies_what_it_installs() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    targets = [line.split()[-1] for line in lines if line.startswith("FROM")]
    assert targets == ["base", "cuda", "cpu"]
    assert lines.count("USER bilm") == 2
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.M)
    assert all((ROOT / name).exists() for name in kept)
    needed = {"bilm", "data_tools", "downstream", "configs", "models", "launch"}
    needed |= {"README.md", "LICENSE"}
    assert needed | {"pyproject.toml", "setup.py", "constraints.txt"} == set(kept)


def test_documentation_names_every_file() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    names = [f"cluster/{path.name}" for path in CLUSTER.iterdir()] + ["Dockerfile"]
    assert [name for name in names if name not in page] == []
