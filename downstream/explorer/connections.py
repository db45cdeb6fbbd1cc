"""Connections that cut off slow clients, which would otherwise keep a connection for any time.

uvicorn limits only the time between requests. Here, the headers of a request must arrive within
`HEADER_SECONDS` after the connection was opened or after the first byte of a further request, and
a client must read its answer within `ANSWER_SECONDS`. `limits.py` limits the time of the body.
uvicorn's fast parser does not limit the size of headers; here it is at most `MAX_HEADER_BYTES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
ANSWER_SECONDS = 60.0
MAX_HEADER_BYTES = 16384


class GuardedConnection(HttpToolsProtocol):
    """A connection with limits on the time of headers and of answers, and the size of headers."""

    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _header_bytes = 0  # of the current request, parsed
    _received_bytes = 0  # since the last request was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the headers of the first request."""
        super().connection_made(transport)
        self._header_timer = self._start(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        _cancel(self._header_timer)
        _cancel(self._answer_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop waiting for headers when they are complete, or start with a further request."""
        super().data_received(data)
        is_idle = self.cycle is None or self.cycle.response_complete
        if not is_idle:
            _cancel(self._header_timer)
            self._header_timer = None
            self._received_bytes = 0
            return
        if self._header_timer is None:
            self._header_timer = self._start(HEADER_SECONDS)
        self._received_bytes += len(data)
        if self._received_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        """Start to count the bytes of the headers."""
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_response_complete(self) -> None:
        """Stop waiting: between requests, uvicorn limits the time."""
        _cancel(self._header_timer)
        self._header_timer = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start to wait until the client reads its answer."""
        super().pause_writing()
        self._answer_timer = self._start(ANSWER_SECONDS)

    def resume_writing(self) -> None:
        """Stop waiting."""
        _cancel(self._answer_timer)
        super().resume_writing()

    def _count(self, num_bytes: int) -> None:
        """Raise an error, which the parser turns into status 400, if the headers are too large."""
        self._header_bytes += num_bytes
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"the headers have more than {MAX_HEADER_BYTES} bytes")

    def _start(self, seconds: float) -> asyncio.TimerHandle:
        abort: Callable[[], None] = self.transport.abort
        return self.loop.call_later(seconds, abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
