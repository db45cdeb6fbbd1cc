"""A run on the second device, in a process of its own: it equals the run on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.launching import (
    TIMEOUT_SECONDS,
    assert_same_run,
    command_for,
    environment,
    launch,
    wait_for_step,
)

TOLERANCE = 1e-6

pytestmark = pytest.mark.slow


def command(corpus: Path, output: Path, *overrides: str) -> list[str]:
    arguments = command_for(corpus, output, *overrides, ranks=None)[2:]
    return [sys.executable, "-m", "tests.second_device.training", *arguments]


def train(corpus: Path, output: Path, *overrides: str, code: int = 0) -> str:
    done = subprocess.run(
        command(corpus, output, *overrides),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    if "the second device cannot be built" in done.stderr:
        pytest.skip("the second device cannot be built")
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def unbroken(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("second") / "run"
    count = re.search(r"operators on the device: (\d+)", train(corpus, output))
    assert count is not None
    assert int(count[1]) > 12 * 100, "the run did not use the device"
    return output


def test_equals_the_run_on_the_cpu(corpus: Path, unbroken: Path, tmp_path: Path) -> None:
    launch(corpus, tmp_path / "run", ranks=None)
    assert_same_run(unbroken, tmp_path / "run", step=12, tolerance=TOLERANCE)


def test_killed_run_resumes_exactly(corpus: Path, unbroken: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = subprocess.Popen(
        command(corpus, output),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd=ROOT,
    )
    try:
        wait_for_step(output, 6)
    finally:
        process.kill()
        process.wait(timeout=60)
    train(corpus, output)
    assert_same_run(unbroken, output, step=12)
