"""Run test files in a process of their own.

Such files are named `cases_*.py`, which pytest does not collect. They need settings that take
effect only when a library is imported, or change the process for all later tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TIMEOUT_SECONDS = 540


def run_module(
    *arguments: str, root: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these arguments in the checkout `root`.

    Settings of pytest and Triton are not inherited.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env={**inherited, "PYTHONPATH": str(root), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


def run_cases(*paths: Path, **variables: str) -> None:
    """Run the tests in these files; fail if one of them fails, skip if all of them are skipped."""
    names = [str(path) for path in paths]
    completed = run_module(
        "pytest", "-n", "0", "-rs", "-p", "no:cacheprovider", *names, **variables
    )
    assert completed.returncode == 0, completed.stdout[-6000:] + completed.stderr[-2000:]
    lines = completed.stdout.splitlines()
    if not any(" passed" in line for line in lines[-1:]):
        pytest.skip(next((line for line in lines if line.startswith("SKIPPED")), "no test was run"))
