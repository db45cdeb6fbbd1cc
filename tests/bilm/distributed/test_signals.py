"""Requests to stop, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
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


def wait_for_lines(log: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while not log.exists() or len(log.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return log.read_text().splitlines()


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:3]], stdout=open(sys.argv[3], "w"))
child.wait()
"""


def start_parent(log: Path, seconds: float, *names: str) -> subprocess.Popen[bytes]:
    """Start a listener under a process with `names` among its arguments."""
    command = [sys.executable, "-c", PARENT, LISTEN, str(seconds), str(log), *names]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stderr=pipe)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("deepspeed", "the launcher of this rank has exited"), ("a shell", "None")],
)
def test_stops_when_launcher_exits_but_not_when_shell_exits(
    name: str, expected: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    parent = start_parent(log, 60 if name == "deepspeed" else 2, name)
    wait_for_lines(log, 1)
    parent.kill()
    parent.wait()
    assert wait_for_lines(log, 2)[1] == expected


# As on a machine to which `deepspeed` has connected with pdsh: it is not above its launcher there.
REMOTE = ["deepspeed.launcher.launch", "--world_info=e30=", "--master_addr=n1", "--master_port=1"]
OUTER = """
import subprocess, sys
subprocess.run(["pdsh", "-c", "read line", *sys.argv[2:]], executable="/bin/sh")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_stops_when_deepspeed_above_pdsh_exits(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outer = subprocess.Popen(
        [sys.executable, "-c", OUTER, "deepspeed", *REMOTE],
        stdin=subprocess.PIPE,  # pdsh exits when the test closes it
        preexec_fn=_reset_handlers,
    )
    deadline = time.monotonic() + 60
    while not any("pdsh" in child.cmdline()[:1] for child in psutil.Process(outer.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    launcher = start_parent(log, 60, *REMOTE)
    wait_for_lines(log, 1)
    outer.send_signal(number)
    outer.wait()
    assert wait_for_lines(log, 2)[1] == "the launcher of this rank has exited"
    launcher.wait(timeout=60)
    assert outer.stdin is not None
    outer.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("is_remote", [True, False])
def test_stops_when_ssh_disconnects(is_remote: bool, tmp_path: Path) -> None:
    log, names = tmp_path / "log", REMOTE if is_remote else ["a shell"]
    launcher = start_parent(log, 60 if is_remote else 2, *names)
    wait_for_lines(log, 1)
    assert launcher.stderr is not None
    launcher.stderr.close()
    expected = "the launcher of this rank has exited" if is_remote else "None"
    assert wait_for_lines(log, 2)[1] == expected
    launcher.wait(timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("is_remote", [True, False])
def test_stops_when_pdsh_exits_at_the_other_end_of_ssh(
    is_remote: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_remote:
        monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 40000 10.0.0.2 22")
    else:
        monkeypatch.delenv("SSH_CONNECTION", raising=False)
    log = tmp_path / "log"
    launcher = start_parent(log, 60 if is_remote else 2, *REMOTE)
    wait_for_lines(log, 1)
    assert launcher.stdin is not None
    launcher.stdin.close()
    expected = "the launcher of this rank has exited" if is_remote else "None"
    assert wait_for_lines(log, 2)[1] == expected
    launcher.wait(timeout=60)
