"""A real process that serves a model on a free port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

DEADLINE_SECONDS = 240  # for a process to start, also on a slow machine


@dataclass(frozen=True)
class Server:
    """A running service."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2].partition("/")[0])

    def connect(self, timeout: float = DEADLINE_SECONDS) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Send a request, and return status, headers and answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        try:
            types = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), {**types, **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), json.loads(answer.read())
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        """Wait until the service answers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_SECONDS)


@contextmanager
def serving(model: Path, *flags: str, **variables: str) -> Iterator[Server]:
    """Run `bilm explore` with the model at `model` until the end of the block."""
    command = [sys.executable, "-m", "bilm", "explore", "--model", str(model), "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    log = model.parent / f"server-{time.monotonic_ns()}.log"
    with running([*command, "--device", "cpu", *flags], log, environment) as server:
        yield server


@contextmanager
def running(command: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[Server]:
    """Run a command that serves a model, until the end of the block."""
    with open(log, "w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()  # ends if the process exits
            assert address, log.read_text(encoding="utf-8")
            server = Server(process, address)
            server.wait_until_ready()
            yield server
        finally:
            process.kill()
            process.wait()
