"""Finding out that a rank is lost, and which one.

Once a second every rank gives rank 0 a sign of life, and rank 0 gives one to each. A rank whose
connection has broken, or that has given none for the timeout (stopped, swapped out, cut off), is
named with its step, ended if it is on the same machine, and the whole run ends. Collectives alone
would say only that somebody does not answer, and a stopped process would outlive them.

Cost: one small message a second and rank.
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

_SECONDS_BETWEEN = 1.0

_PATIENCE_SECONDS = 5.0  # for a verdict, when a collective has failed

_GREETING_SECONDS = 5.0  # for a stranger to say who it is

_MAX_LINE = 1 << 12


class Watch:
    """This rank's signs of life, and its eye on the others."""

    def __init__(
        self, rank: int, world: int, timeout_seconds: float, agree: Callable[[Any], Any]
    ) -> None:
        """All ranks must make one together; `agree` gives rank 0's plain value to every rank."""
        self._rank, self._step, self._verdict = rank, 0, ""
        self._interval = min(_SECONDS_BETWEEN, timeout_seconds / 10)
        self._patience = max(2, round(timeout_seconds / self._interval))
        self._is_ended = threading.Event()
        self._links = _connect(rank, world, timeout_seconds, agree)
        self._thread = threading.Thread(target=self._watch, name="signs of life", daemon=True)
        self._thread.start()

    def note_step(self, step: int) -> None:
        """Say how many steps are done."""
        self._step = step

    def stop(self) -> None:
        """Leave in order: nobody is to miss this rank."""
        if self._is_ended.is_set():
            return
        self._is_ended.set()
        self._thread.join()
        for link in self._links.values():
            link.send({"leaving": True})
            link.close()

    def explain(self, error: RuntimeError) -> BilmError | None:
        """What a failed collective comes from; None if `error` is none of that kind."""
        if not isinstance(error, DistError) and "gloo" not in str(error):
            return None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._verdict:
                return LostRankError(self._verdict)
            if any(link.is_leaving for link in self._links.values()):
                return PeerError("another rank has left, and has said why")
            time.sleep(0.05)
        first = str(error).splitlines()[0]
        return LostRankError(
            f"rank {self._rank} lost touch with the other ranks in step {self._step + 1}: {first}"
        )

    def _watch(self) -> None:
        while not self._is_ended.wait(self._interval):
            for link in self._links.values():
                link.send({})
            for rank, link in self._links.items():
                how = self._how_lost(link)
                if how and not self._is_ended.is_set():
                    self._end_run(rank, link, how)

    def _how_lost(self, link: _Link) -> str:
        """How a rank is lost; empty if it is not.

        Silence is counted by our own beats: while this process is itself stopped, none pass.
        """
        messages = link.receive()
        link.silent = 0 if messages else link.silent + 1
        for message in messages:
            if isinstance(message.get("verdict"), str):
                self._verdict = message["verdict"]  # rank 0 says it; we only end
                _leave()
            link.is_leaving = link.is_leaving or "leaving" in message
        if link.is_leaving:
            return ""
        if link.is_closed:
            return "is gone"
        if link.silent >= self._patience:
            return f"has given no sign of life for {link.silent * self._interval:.0f} s"
        return ""

    def _end_run(self, rank: int, link: _Link, how: str) -> None:
        """Say who is lost, see to it that nothing of it stays, and end."""
        self._verdict = (
            f"rank {rank} (process {link.process} on {link.machine[0]}) {how}, in step "
            f"{self._step + 1}. The run ends; the same command goes on from the newest checkpoint"
        )
        if self._rank == 0 or (rank == 0 and self._rank == 1):
            logger.error("error: %s", self._verdict)
        else:
            time.sleep(3 * self._interval)  # that rank 1 finds what we have found
        if link.machine == _machine():
            try:
                os.kill(link.process, signal.SIGKILL)
            except OSError:
                pass  # gone
        for other in self._links.values():
            other.send({"verdict": self._verdict})
        _leave()


class _Link:
    """A connection to another rank: one JSON object a line, never waited for."""

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
            pass  # full or broken: reading tells

    def receive(self) -> list[dict[str, Any]]:
        """What has come since the last time."""
        while not self.is_closed:
            try:
                part = self._connection.recv(_MAX_LINE)
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
    rank: int, world: int, timeout_seconds: float, agree: Callable[[Any], Any]
) -> dict[int, _Link]:
    """Rank 0 to all others, all others to rank 0; who does not know the secret is not let in."""
    host = os.environ["MASTER_ADDR"]
    me = [os.getpid(), *_machine()]
    if rank == 0:
        with _listen(host, world) as server:
            port, secret, *_ = agree([server.getsockname()[1], secrets.token_hex(16), *me])
            return _welcome(server, world, secret, timeout_seconds)
    port, secret, process, *machine = agree(None)
    connection = socket.create_connection((host, port), timeout=timeout_seconds)
    greeting = {"secret": secret, "rank": rank, "process": me[0], "machine": me[1:]}
    connection.sendall(json.dumps(greeting).encode() + b"\n")
    return {0: _Link(connection, process, (machine[0], machine[1]))}


def _listen(host: str, world: int) -> socket.socket:
    """At the address that the other ranks know; at all of ours, if that is another machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family, backlog=world)
    except OSError:
        return socket.create_server(("", 0), family=family, backlog=world)


def _welcome(
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
            raise LostRankError(f"ranks {missing} have not come in {timeout_seconds} s") from None
        connection.settimeout(_GREETING_SECONDS)
        try:
            greeting = json.loads(_read_line(connection))
            if not hmac.compare_digest(str(greeting["secret"]), secret):
                raise ValueError("a stranger")
            link = _Link(connection, int(greeting["process"]), tuple(greeting["machine"]))
            links[int(greeting["rank"])] = link
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()
    return links


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_LINE:
        part = connection.recv(1)
        if not part:
            break
        line += part
    return line


def _leave() -> None:
    """End the process, once the main thread has had time to say what it knows."""
    time.sleep(1.0)
    os._exit(LOST_RANK_EXIT_CODE)


def _machine() -> tuple[str, str]:
    """Where process numbers mean the same: a machine, or a container on it."""
    try:
        names = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        names = ""
    return socket.gethostname(), names
