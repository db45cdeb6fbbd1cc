"""The processes and the figures of benchmarks/contention.py; nothing is measured."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import contention
from contention import BASE, BUSY, CONTENDERS, Bounds, Stopped, Turns, print_figures, take_turn

ECHO = "import os, sys\nfor _ in sys.stdin: print(len([k for k in os.environ if 'OMP_' in k]))"


@pytest.fixture
def bounds() -> Bounds:
    return Bounds(max_rounds=4, max_spread=0.1, max_foreign=0.1)


def test_processes_get_only_their_own_openmp_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_DYNAMIC"):
        monkeypatch.setenv(name, "1")
    for variables in CONTENDERS.values():
        process = Stopped(["-u", "-c", ECHO], variables)
        try:
            num_set = sum("OMP_" in name for name in variables)
            assert process.words_per_second() == num_set
        finally:
            process.close()


def test_busy_processes_run_only_during_a_turn() -> None:
    worker = Stopped(["-u", "-c", ECHO], {})
    busy = Stopped(["-c", BUSY], {})
    try:
        for process in (worker, busy):
            process.process.send_signal(signal.SIGSTOP)
        turns = Turns()
        deadline = time.monotonic() + 60
        while busy.seconds() < 0.05 and time.monotonic() < deadline:
            take_turn(turns, worker, [busy])
        assert busy.seconds() >= 0.05
        while busy._usage.status() != "stopped":
            assert time.monotonic() < deadline
        assert len(turns.speeds) == len(turns.foreign) > 0
    finally:
        worker.close()
        busy.close()


def test_a_failed_process_is_an_error() -> None:
    process = Stopped(["-c", "import sys; sys.exit(7)"], {})
    try:
        with pytest.raises(RuntimeError, match="exit code 7"):
            process.read_line()
    finally:
        process.close()


def test_noise_is_reported(bounds: Bounds) -> None:
    assert bounds.are_met(Turns([100, 101, 99, 100], [0.0] * 4))
    assert not bounds.are_met(Turns([100, 150, 99, 70], [0.0] * 4))
    assert not bounds.are_met(Turns([100, 101, 99, 100], [0.5] * 4))
    assert not bounds.are_met(Turns([100, 100], [0.0] * 2))  # too few


def test_prints_ratios_of_the_same_round(
    bounds: Bounds, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = [0.0, 0.0]
    turns = {
        (0, BASE): Turns([100, 200], quiet),
        (0, "x"): Turns([150, 300], quiet),
        (2, BASE): Turns([50, 100], quiet),
        (2, "x"): Turns([25, 50], quiet),
    }
    print_figures("small", turns, bounds)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {(line["busy"], line["contender"]): (line["times"], line["kept"]) for line in lines}
    assert found[0, BASE] == (1, 1)
    assert found[0, "x"] == (1.5, 1)
    assert found[2, BASE] == (1, 0.5)
    assert found[2, "x"] == (0.5, 0.167)
    assert all(line["is_too_noisy"] for line in lines)


def test_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os, sys\nfor _ in sys.stdin: print(os.getpid())"
    monkeypatch.setattr(contention, "start_worker", lambda *_: Stopped(["-u", "-c", code], {}))
    never_met = Bounds(max_rounds=10_000, max_spread=-1.0, max_foreign=0.1)
    is_reliable = contention.measure_workload("news", never_met, Path(), 0.0, time.monotonic())
    assert not is_reliable
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(CONTENDERS) * len(contention.BUSY_COUNTS)
    assert {line["rounds"] for line in lines} == {contention.MIN_ROUNDS}
