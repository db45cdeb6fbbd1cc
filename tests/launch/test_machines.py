"""Two launchers on one machine, which act as two machines (`--no_ssh`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import (
    TIMEOUT_SECONDS,
    assert_same_run,
    build_demo_corpus,
    command_for,
    environment,
    free_port,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 12


def test_two_machines_train_like_one(tmp_path: Path) -> None:
    corpus = build_demo_corpus(tmp_path / "demo")
    train_forked(corpus, tmp_path / "one" / "run")
    # Each machine has its own output_dir; only the first one writes.
    output = tmp_path / "two" / "run"
    script = command_for(corpus, output, ranks=None)[1:]
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 slots=1\n127.0.0.3 slots=1\n")
    launcher = [
        str(Path(sys.executable).parent / "deepspeed"),
        f"--hostfile={hosts}",
        "--no_ssh",
        "--master_addr=127.0.0.1",
        f"--master_port={free_port()}",
    ]
    machines = []
    for node in range(2):
        own = [
            part.replace(str(output), str(output) if node == 0 else f"{output}-{node}")
            for part in script
        ]
        machines.append(
            subprocess.Popen(
                [*launcher, "--node_rank", str(node), *own],
                env=environment(),
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for machine in machines:
        _, errors = machine.communicate(timeout=TIMEOUT_SECONDS)
        assert machine.returncode == 0, errors[-3000:]
    assert_same_run(tmp_path / "one" / "run", output, STEPS, 1e-5)
    assert not Path(f"{output}-1").exists()
