"""Slow clients are cut off: uvicorn in a thread, with short limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

import uvicorn
from fastapi import FastAPI, Response

from downstream.explorer import connections
from downstream.explorer.server import Endpoint, config_of

DEADLINE_SECONDS = 120
SHORT_SECONDS = 0.3
HEAD = b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE_BYTES = 1 << 25  # more than the buffers of a connection


@contextmanager
def serving() -> Iterator[int]:
    app = FastAPI()

    @app.get("/{size}")
    def answer(size: int) -> Response:
        return Response(b"x" * size)

    with Endpoint.bind("127.0.0.1", 0) as endpoint:
        endpoint.listen()
        server = uvicorn.Server(config_of(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [endpoint.socket]})
        thread.start()
        try:
            yield int(endpoint.socket.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)


@contextmanager
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as own:
        yield own


def is_cut_off(own: socket.socket) -> bool:
    """Whether the service closes the connection without an answer."""
    try:
        return own.recv(1) == b""
    except ConnectionError:
        return True


def read_until(own: socket.socket, end: bytes) -> bytes:
    """Return what arrives up to `end`, or until the connection is closed."""
    answer = b""
    while not answer.endswith(end) and (part := own.recv(4096)):
        answer += part
    assert answer.endswith(end)
    return answer


@pytest.mark.parametrize("start", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_incomplete_headers_are_cut_off(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SHORT_SECONDS)
    with serving() as port, client(port) as own:
        own.sendall(start)
        assert is_cut_off(own)


def test_headers_that_arrive_byte_by_byte_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SHORT_SECONDS)

    def send_slowly(own: socket.socket) -> None:
        while True:
            own.sendall(b"G")
            time.sleep(0.01)

    with serving() as port, client(port) as own, pytest.raises(ConnectionError):
        send_slowly(own)


def test_incomplete_second_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SHORT_SECONDS)
    with serving() as port, client(port) as own:
        own.sendall(HEAD % b"1")
        read_until(own, b"x")
        own.sendall(b"GET / HTTP")
        assert is_cut_off(own)


def test_complete_requests_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SHORT_SECONDS)
    with serving() as port, client(port) as own:
        for _ in range(3):
            own.sendall(HEAD % b"1")
            assert read_until(own, b"x").startswith(b"HTTP/1.1 200")
            time.sleep(1.5 * SHORT_SECONDS)  # between requests, another limit applies


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"X: " + b"x" * connections.MAX_HEADER_BYTES + b"\r\n\r\n", id="long"),
        pytest.param(b"X: " + b"x" * connections.MAX_HEADER_BYTES, id="incomplete"),
        pytest.param(b"X: x\r\n" * connections.MAX_HEADER_BYTES + b"\r\n", id="many"),
    ],
)
def test_large_headers_are_rejected(headers: bytes) -> None:
    with serving() as port, client(port) as own:
        with suppress(ConnectionError):  # it may be closed before everything is sent
            own.sendall(b"GET /1 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers)
        assert own.recv(12) == b"HTTP/1.1 400"


def test_large_headers_in_parts_are_rejected() -> None:
    def send_in_parts(own: socket.socket) -> None:
        own.sendall(b"GET /")
        while True:
            own.sendall(b"x" * 1000)
            time.sleep(0.001)

    with serving() as port, client(port) as own, pytest.raises(ConnectionError):
        send_in_parts(own)


def test_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", SHORT_SECONDS)
    with serving() as port, client(port) as own:
        own.sendall(HEAD % str(LARGE_BYTES).encode())
        time.sleep(2 * SHORT_SECONDS)
        size = 0
        with suppress(ConnectionError):
            while part := own.recv(1 << 20):
                size += len(part)
        assert size < LARGE_BYTES
