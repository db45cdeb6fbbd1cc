"""Connections for heartbeats, in threads of one process."""

from __future__ import annotations

import json
import queue
import socket
import threading
from typing import Any

import pytest

from bilm.distributed.links import Link, connect
from bilm.errors import ConfigError, LostRankError

NO_HOST = "0.0.0.1"  # connections to it fail at once


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rank 0 find its own address also on a machine without a network."""
    monkeypatch.delenv("BILM_HEARTBEAT_PORT", raising=False)
    monkeypatch.setattr("bilm.distributed.links._own_addresses", lambda: ["127.0.0.1"])


def start_rank_0() -> tuple[dict[str, Any], queue.Queue[dict[int, Link]]]:
    """Let rank 0 of two listen in a thread; return what it offers, and where its link will be."""
    offers: queue.Queue[dict[str, Any]] = queue.Queue()
    links: queue.Queue[dict[int, Link]] = queue.Queue()

    def broadcast(offer: dict[str, Any]) -> dict[str, Any]:
        offers.put(offer)
        return offer

    threading.Thread(target=lambda: links.put(connect(0, 2, 60.0, broadcast)), daemon=True).start()
    return offers.get(timeout=60), links


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", NO_HOST])
def test_reaches_rank_0_at_any_of_its_addresses(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    offer, links = start_rank_0()
    own = connect(1, 2, 60.0, lambda _: offer)[0]
    other = links.get(timeout=60)[1]
    own.send({"a": 1})
    own.close()
    received: list[dict[str, Any]] = []
    while not other.is_closed:
        received += other.receive()
    assert received == [{"a": 1}]
    other.close()


@pytest.mark.usefixtures("offered")
def test_ignores_connection_without_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    offer, links = start_rank_0()
    with socket.create_connection(("127.0.0.1", offer["port"]), timeout=60) as stranger:
        greeting = {"secret": "x", "rank": 1, "process": 1, "machine": ["", ""]}
        stranger.sendall(json.dumps(greeting).encode() + b"\n")
        assert stranger.recv(1) == b""
    connect(1, 2, 60.0, lambda _: offer)[0].close()
    links.get(timeout=60)[1].close()


@pytest.mark.usefixtures("offered")
def test_rejects_other_program_at_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def answer() -> None:
            while True:
                try:
                    stranger.accept()[0].sendall(b"hello\n")
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        offer = {
            "port": stranger.getsockname()[1],
            "addresses": [NO_HOST],
            "secrets": ["a", "b"],
            "process": 1,
            "machine": ["", ""],
        }
        with pytest.raises(LostRankError, match=r"127\.0\.0\.1 \(another program.*MASTER_ADDR"):
            connect(1, 2, 0.5, lambda _: offer)


@pytest.mark.parametrize("port", ["http", "-1", "65536"])
def test_rejects_invalid_port(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILM_HEARTBEAT_PORT", port)
    with pytest.raises(ConfigError, match=f"BILM_HEARTBEAT_PORT is '{port}'; it must be a port"):
        connect(0, 2, 1.0, lambda _: None)
