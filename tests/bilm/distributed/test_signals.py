"""Requests to stop, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bilm.distributed.signals import STOP_SIGNALS, StopRequest
from tests.conftest import ROOT

LISTEN = """
import sys, time
from bilm.distributed.signals import StopRequest
stop = StopRequest()
with stop.listen():
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
        preexec_fn=_reset_handlers,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _reset_handlers() -> None:
    """Restore the default handlers: the tests may have been started by nohup, or with `&`."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_requests_stop_once(number: signal.Signals) -> None:
    process = listener(30)
    process.send_signal(number)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out.strip() == number.name
    assert process.returncode == 0


def test_waits_for_second_signal_only_after_a_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("bilm.distributed.signals.time.sleep", waits.append)
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    stop = StopRequest()
    try:
        with stop.listen():
            stop.wait_for_second_signal()
            assert not waits
            signal.signal(signal.SIGTERM, stop._on_signal)  # the tests may ignore it
            signal.raise_signal(signal.SIGTERM)
            monkeypatch.setattr("bilm.distributed.signals.SECOND_SIGNAL_SECONDS", 100.0)
            stop.wait_for_second_signal()
            assert 0 < waits.pop() <= 100
            monkeypatch.setattr("bilm.distributed.signals.SECOND_SIGNAL_SECONDS", 0.0)
        assert waits == [0.0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_restores_handlers() -> None:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with StopRequest().listen():
        pass
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before


def test_does_not_handle_signals_outside_the_main_thread() -> None:
    failures: list[BaseException] = []

    def listen() -> None:
        try:
            with StopRequest().listen():
                pass
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join(timeout=30)
    assert not failures


def test_respects_nohup() -> None:
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
    [("deepspeed", "the launcher of this rank has exited"), ("a shell", "None")],
)
def test_stops_when_launcher_exits_but_not_when_shell_exits(
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
