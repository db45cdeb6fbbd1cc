"""Heartbeats between ranks, which detect a lost rank and name it.

Once per second every other rank sends rank 0 a heartbeat, and rank 0 sends one to each of them. A
rank is lost if its connection is broken, or if it has sent nothing for the timeout (stopped,
swapped out, disconnected). The lost rank and its step are logged, its process is killed if it runs
on this machine, and all ranks exit. A failed collective alone would not name the rank, and a
stopped process would survive it.

Cost: one small message per rank per second.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed import DistError

from bilm.errors import LOST_RANK_EXIT_CODE, BilmError, LostRankError, PeerError

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 1.0

_VERDICT_SECONDS = 5.0  # after a failed collective: how long to wait for the name of the lost rank

_GREETING_SECONDS = 5.0  # how long a new connection may take to identify itself

_MAX_LINE_BYTES = 1 << 12


class Heartbeat:
    """Sends this rank's heartbeats, and checks those of the ranks it is connected to."""

    def __init__(
        self, rank: int, world: int, timeout_seconds: float, broadcast: Callable[[Any], Any]
    ) -> None:
        """Connect the ranks; all ranks must call this at the same time.

        `broadcast` returns rank 0's JSON value on every rank.
        """
        self._rank, self._step, self._verdict = rank, 0, ""
        self._interval = min(_INTERVAL_SECONDS, timeout_seconds / 10)
        self._max_silent = max(2, round(timeout_seconds / self._interval))
        self._is_stopped = threading.Event()
        self._links = _connect(rank, world, timeout_seconds, broadcast)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def note_step(self, step: int) -> None:
        """Record the number of finished steps."""
        self._step = step

    def stop(self) -> None:
        """Stop cleanly, so that other ranks do not report this one as lost."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        self._thread.join()
        for link in self._links.values():
            link.send({"leaving": True})
            link.close()

    def explain(self, error: RuntimeError) -> BilmError | None:
        """Return the cause of a failed collective; None if `error` is not from a collective."""
        if not isinstance(error, DistError) and "gloo" not in str(error):
            return None
        deadline = time.monotonic() + _VERDICT_SECONDS
        while time.monotonic() < deadline:
            if self._verdict:
                return LostRankError(self._verdict)
            if any(link.is_leaving for link in self._links.values()):
                return PeerError("another rank has exited and printed the reason")
            time.sleep(0.05)
        first = str(error).splitlines()[0]
        return LostRankError(
            f"rank {self._rank} lost its connection to the other ranks in step "
            f"{self._step + 1}: {first}"
        )

    def _beat(self) -> None:
        while not self._is_stopped.wait(self._interval):
            for link in self._links.values():
                link.send({})
            for rank, link in self._links.items():
                reason = self._check(link)
                if reason and not self._is_stopped.is_set():
                    self._end_run(rank, link, reason)

    def _check(self, link: _Link) -> str:
        """Return why the rank at the other end is lost; an empty string if it is not.

        Silence is counted in intervals of this process, none of which pass while it is stopped.
        """
        messages = link.receive()
        link.silent = 0 if messages else link.silent + 1
        for message in messages:
            if isinstance(message.get("verdict"), str):
                self._verdict = message["verdict"]  # rank 0 has logged it
                _exit()
            link.is_leaving = link.is_leaving or "leaving" in message
        if link.is_leaving:
            return ""
        if link.is_closed:
            return "has exited or was killed"
        if link.silent >= self._max_silent:
            return f"has sent no heartbeat for {link.silent * self._interval:.0f} s"
        return ""

    def _end_run(self, rank: int, link: _Link, reason: str) -> None:
        """Log the lost rank, kill its process if it runs on this machine, and exit."""
        self._verdict = (
            f"rank {rank} (process {link.process} on {link.machine[0]}) {reason}, in step "
            f"{self._step + 1}. The run stops; run the same command to resume from the latest "
            "checkpoint"
        )
        if self._rank == 0 or (rank == 0 and self._rank == 1):
            logger.error("error: %s", self._verdict)
        else:
            time.sleep(3 * self._interval)  # rank 1 must detect the same loss first
        if link.machine == _machine():
            try:
                os.kill(link.process, signal.SIGKILL)
            except OSError:
                pass  # it has already exited
        for other in self._links.values():
            other.send({"verdict": self._verdict})
        _exit()


class _Link:
    """A non-blocking connection to another rank, with one JSON object per line."""

    def __init__(self, connection: socket.socket, process: int, machine: tuple[str, str]) -> None:
        connection.setblocking(False)
        self._connection, self._buffer = connection, b""
        self.process, self.machine = process, machine
        self.silent = 0
        self.is_closed = self.is_leaving = False

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._connection.send(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # a broken connection is detected when reading

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived since the last call."""
        while not self.is_closed:
            try:
                part = self._connection.recv(_MAX_LINE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self.is_closed = not part
            self._buffer += part
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._connection.close()


def _connect(
    rank: int, world: int, timeout_seconds: float, broadcast: Callable[[Any], Any]
) -> dict[int, _Link]:
    """Connect rank 0 to every other rank; a connection must present the shared secret."""
    host = os.environ["MASTER_ADDR"]
    own = [os.getpid(), *_machine()]
    if rank == 0:
        with _listen(host, world) as server:
            port, secret, *_ = broadcast([server.getsockname()[1], secrets.token_hex(16), *own])
            return _accept(server, world, secret, timeout_seconds)
    port, secret, process, *machine = broadcast(None)
    connection = socket.create_connection((host, port), timeout=timeout_seconds)
    greeting = {"secret": secret, "rank": rank, "process": own[0], "machine": own[1:]}
    connection.sendall(json.dumps(greeting).encode() + b"\n")
    return {0: _Link(connection, process, (machine[0], machine[1]))}


def _listen(host: str, world: int) -> socket.socket:
    """Listen at the address that the other ranks use, or at all addresses if it is not local."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family, backlog=world)
    except OSError:
        return socket.create_server(("", 0), family=family, backlog=world)


def _accept(
    server: socket.socket, world: int, secret: str, timeout_seconds: float
) -> dict[int, _Link]:
    links: dict[int, _Link] = {}
    deadline = time.monotonic() + timeout_seconds
    while len(links) < world - 1:
        server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, world)) - set(links))
            raise LostRankError(
                f"ranks {missing} did not connect within {timeout_seconds} s"
            ) from None
        connection.settimeout(_GREETING_SECONDS)
        try:
            greeting = json.loads(_read_line(connection))
            if not hmac.compare_digest(str(greeting["secret"]), secret):
                raise ValueError("wrong secret")
            link = _Link(connection, int(greeting["process"]), tuple(greeting["machine"]))
            links[int(greeting["rank"])] = link
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()
    return links


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
        part = connection.recv(1)
        if not part:
            break
        line += part
    return line


def _exit() -> None:
    """Exit, after the main thread has had time to print its own error."""
    time.sleep(1.0)
    os._exit(LOST_RANK_EXIT_CODE)


def _machine() -> tuple[str, str]:
    """Return the host name and the namespace in which process ids are valid."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return socket.gethostname(), namespace
