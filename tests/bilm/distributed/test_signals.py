"""What counts as a request to stop, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilm.distributed.signals import STOP_SIGNALS, StopRequest
from tests.conftest import ROOT

LISTEN = """
import sys, time
from bilm.distributed.signals import StopRequest
stop = StopRequest()
stop.listen()
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and stop.reason is None:
    time.sleep(0.02)
print(stop.reason, flush=True)
"""


def listener(seconds: float, *prefix: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", LISTEN, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=_hear_all,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _hear_all() -> None:
    """As from a terminal: these tests may themselves have been started by nohup, or with `&`."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_request_and_twice_is_no_more(number: signal.Signals) -> None:
    process = listener(30)
    process.send_signal(number)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out.strip() == number.name
    assert process.returncode == 0


def test_who_is_signalled_outlasts_a_second_signal_and_nobody_else_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("bilm.distributed.signals.time.sleep", waits.append)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stop = StopRequest()
    try:
        stop.listen()
        stop.outlast_pair()
        assert not waits
        signal.signal(signal.SIGTERM, stop._on_signal)  # even if these tests ignore it
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr("bilm.distributed.signals.PAIR_SECONDS", 100.0)
        stop.outlast_pair()
        assert 0 < waits.pop() <= 100
        monkeypatch.setattr(
            "bilm.distributed.signals.PAIR_SECONDS", 0.0
        )  # the second one came long ago
        stop.outlast_pair()
        assert waits == [0.0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_nohup_is_respected() -> None:
    process = listener(1.5, "nohup")
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=30)
    assert out.strip() == "None"


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], "5"], stdout=open(sys.argv[2], "w"))
child.wait()
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("deepspeed", "the process that started this rank has ended"), ("a shell", "None")],
)
def test_the_death_of_deepspeed_above_counts_that_of_a_shell_does_not(
    name: str, expected: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, LISTEN, str(log), name], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not log.exists() or "ready" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    while len(log.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert log.read_text().splitlines()[1] == expected
