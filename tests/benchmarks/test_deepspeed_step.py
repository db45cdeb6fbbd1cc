"""Runs that take turns, with a process that only writes metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from deepspeed_step import Ranks

WRITER = """
import json, sys, time
with open(sys.argv[1] + "/metrics.jsonl", "a", buffering=1) as file:
    for step in range(1, 1_000_000):
        time.sleep(0.002)
        file.write(json.dumps({"event": "train", "step": step, "words_per_second": step}) + "\\n")
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[psutil.Popen]:
    started = psutil.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    yield started
    started.kill()
    started.wait()


def test_run_is_stopped_between_turns(process: psutil.Popen, tmp_path: Path) -> None:
    run = Ranks(process, tmp_path)
    assert process.status() == psutil.STATUS_STOPPED
    before = len(run.speeds())
    assert before >= 3
    speed = run.words_per_second(0.01)
    assert process.status() == psutil.STATUS_STOPPED
    after = len(run.speeds())
    assert before + 2 <= speed <= after  # the step that was stopped does not count


def test_reports_failed_run(tmp_path: Path) -> None:
    failed = psutil.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(RuntimeError, match="exit code 3"):
        Ranks(failed, tmp_path)
