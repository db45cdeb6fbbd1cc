"""Several runs on one machine: launchers choose the same port unless told otherwise."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.launching import TIMEOUT_SECONDS, command_for, environment

pytestmark = [pytest.mark.slow, pytest.mark.launch]


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def run_on(port: int, ranks: int, corpus: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Run two steps with the launcher's port set to `port`."""
    command = [
        f"--master_port={port}" if part.startswith("--master_port") else part
        for part in command_for(corpus, output, "train.max_steps=2", ranks=ranks)
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(),
        cwd=ROOT,
    )


def test_reports_used_port_once(corpus: Path, used_port: int, tmp_path: Path) -> None:
    done = run_on(used_port, 2, corpus, tmp_path / "run")
    assert done.returncode == 2, done.stderr
    assert f"error: port {used_port}" in done.stderr
    assert "--master_port" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


def test_single_rank_needs_no_port(corpus: Path, used_port: int, tmp_path: Path) -> None:
    done = run_on(used_port, 1, corpus, tmp_path / "run")
    assert done.returncode == 0, done.stderr
