"""Row 4: a fault at every write, sync and rename of a save."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.chaos.table import row
from tests.conftest import ROOT
from tests.launch.launching import environment

# Forty cases take seconds, so the short version is the whole row.
pytestmark = [pytest.mark.slow]


def test_a_fault_at_every_operation_of_a_save(tmp_path: Path) -> None:
    _try_row(tmp_path)


@pytest.mark.chaos
def test_a_fault_at_every_operation_of_a_save_for_the_table(tmp_path: Path) -> None:
    _try_row(tmp_path)


def _try_row(tmp_path: Path) -> None:
    with row(4, "a fault (error, full disk, death) at each operation of a save") as trying:
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
            with trying.case(f"{case['kind']} at operation {case['at']}"):
                assert case["wrong"] is None, case["wrong"]
        operations = Counter(case["kind"] for case in cases)
        assert set(operations) == set(faults.KINDS)
        assert min(operations.values()) >= 15, operations  # four files, each written and synced
        assert {case["code"] for case in cases if case["kind"] == "death"} == {137}
        assert 0 not in {case["code"] for case in cases}, "a fault went unnoticed"
        trying.worst = f"{len(cases) // len(operations)} operations; the one before at worst"
