"""Connections between rank 0 and each other rank, for heartbeats.

Rank 0 listens on all of its addresses, because the name of a machine often means a loopback address
on the machine itself (`127.0.1.1` on Debian). It listens on a free port, or on BILM_HEARTBEAT_PORT.
The other ranks try MASTER_ADDR and then the addresses that rank 0 has found for itself. Both ends
of a connection must present a secret that rank 0 has sent through the process group.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError, LostRankError, PeerError

PORT_VARIABLE = "BILM_HEARTBEAT_PORT"

_GREETING_SECONDS = 5.0  # how long a new connection may take to identify itself

_CONNECT_SECONDS = 60.0  # how long to try all addresses of rank 0

_MAX_LINE_BYTES = 1 << 12

_UNUSED_ADDRESS = "192.0.2.1"  # reserved for documentation; its route is that to other networks


class Link:
    """A non-blocking connection to another rank, with one JSON object per line."""

    def __init__(self, connection: socket.socket, process: int, machine: tuple[str, str]) -> None:
        connection.setblocking(False)
        self._connection, self._buffer = connection, b""
        self.process, self.machine = process, machine
        self.silent = 0
        self.is_closed = self.is_leaving = False

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, unless the connection is broken or full."""
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
        """Close the connection."""
        self._connection.close()


def connect(
    rank: int, world: int, timeout_seconds: float, broadcast: Callable[[Any], Any]
) -> dict[int, Link]:
    """Connect rank 0 to every other rank; `broadcast` returns rank 0's JSON value on every rank."""
    if rank > 0:
        offer = broadcast(None)
        if offer is None:
            raise PeerError("rank 0 cannot listen and has printed the reason")
        return {0: _reach(rank, offer, timeout_seconds)}
    try:
        server = _listen(world)
    except ConfigError:
        broadcast(None)
        raise
    with server:
        offer = {
            "port": server.getsockname()[1],
            "addresses": _own_addresses(),
            "secrets": [secrets.token_hex(16), secrets.token_hex(16)],
            "process": os.getpid(),
            "machine": this_machine(),
        }
        return _accept(server, world, broadcast(offer)["secrets"], timeout_seconds)


def this_machine() -> tuple[str, str]:
    """Return the host name and the namespace in which process ids are valid."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return socket.gethostname(), namespace


def _listen(world: int) -> socket.socket:
    text = os.environ.get(PORT_VARIABLE, "0")
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise ConfigError(f"{PORT_VARIABLE} is {text!r}; it must be a port from 1 to 65535")
    try:
        return _listen_on(int(text), world)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on port {text}, which is set by {PORT_VARIABLE}: {error.strerror}. Set "
            "it to a free port, or unset it to use any free port"
        ) from None


def _listen_on(port: int, world: int) -> socket.socket:
    """Listen on all addresses, those of IPv6 included if this machine has them."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=world, dualstack_ipv6=True
            )
        except OSError:
            pass  # IPv6 may be switched off
    return socket.create_server(("", port), backlog=world)


def _own_addresses() -> list[str]:
    """Return addresses at which other machines may reach this one."""
    address = own_address_towards(_UNUSED_ADDRESS)
    return [*([address] if address else []), socket.gethostname()]


def own_address_towards(host: str) -> str:
    """Return the address from which this machine sends to `host`; an empty string if none."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _reach(rank: int, offer: dict[str, Any], timeout_seconds: float) -> Link:
    """Connect to rank 0 at the first of its addresses where it presents its secret."""
    hosts = list(dict.fromkeys([os.environ["MASTER_ADDR"], *offer["addresses"]]))
    deadline = time.monotonic() + min(timeout_seconds, _CONNECT_SECONDS)
    failures: dict[str, str] = {}
    while True:
        for host in hosts:
            try:
                connection = socket.create_connection((host, offer["port"]), _GREETING_SECONDS)
            except OSError as error:
                failures[host] = str(error.strerror or error)
                continue
            try:
                _greet(connection, rank, offer["secrets"])
            except (OSError, ValueError) as error:
                failures[host] = str(error)
                connection.close()
                continue
            return Link(connection, offer["process"], tuple(offer["machine"]))
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    tried = ", ".join(f"{host} ({reason})" for host, reason in failures.items())
    raise LostRankError(
        f"rank {rank} on {socket.gethostname()} cannot connect to port {offer['port']} of rank 0; "
        f"it tried {tried}. Set MASTER_ADDR to an address that all machines reach. If only some "
        f"ports are open between them, set {PORT_VARIABLE} to one of them on rank 0"
    )


def _greet(connection: socket.socket, rank: int, keys: list[str]) -> None:
    """Identify this rank, and check that rank 0 answers."""
    greeting = {"secret": keys[0], "rank": rank, "process": os.getpid(), "machine": this_machine()}
    connection.sendall(json.dumps(greeting).encode() + b"\n")
    if not hmac.compare_digest(_read_line(connection).strip(), keys[1].encode()):
        raise ValueError("another program listens there")


def _accept(
    server: socket.socket, world: int, keys: list[str], timeout_seconds: float
) -> dict[int, Link]:
    links: dict[int, Link] = {}
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
            if not hmac.compare_digest(str(greeting["secret"]), keys[0]):
                raise ValueError("wrong secret")
            connection.sendall(keys[1].encode() + b"\n")
            link = Link(connection, int(greeting["process"]), tuple(greeting["machine"]))
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
