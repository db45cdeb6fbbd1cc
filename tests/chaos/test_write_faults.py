"""Row 4: a fault in every write, sync and rename of a save."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.chaos.results import row
from tests.conftest import ROOT
from tests.launch.launching import environment

# The cases take seconds, so the short version is the complete row.
pytestmark = [pytest.mark.slow]


def test_write_faults_short(tmp_path: Path) -> None:
    _run_row(tmp_path)


@pytest.mark.chaos
def test_write_faults(tmp_path: Path) -> None:
    _run_row(tmp_path)


def _run_row(tmp_path: Path) -> None:
    with row(4, "a fault (error, full disk, kill) in each operation of a save") as results:
        library = faults.build(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos.saving", str(tmp_path / "work")],
            env=environment() | {"LD_PRELOAD": str(library)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        cases = [json.loads(line) for line in done.stdout.splitlines()]
        for case in cases:
            with results.case(f"{case['kind']} at operation {case['at']}"):
                assert case["problem"] is None, case["problem"]
        operations = Counter(case["kind"] for case in cases)
        assert set(operations) == set(faults.KINDS)
        assert min(operations.values()) >= 15, operations  # four files, each written and synced
        assert {case["code"] for case in cases if case["kind"] == "death"} == {137}
        assert 0 not in {case["code"] for case in cases}, "a fault was not detected"
        results.worst = (
            f"{len(cases) // len(operations)} operations; at worst the previous checkpoint remained"
        )
