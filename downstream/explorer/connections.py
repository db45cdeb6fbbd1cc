"""Connections that cut off slow clients, which would otherwise keep a connection for any time.

uvicorn limits only the time between requests. Here, the headers of a request must arrive within
`HEADER_SECONDS` after the connection was opened or after the first byte of a further request, and
a client must read its answer within `ANSWER_SECONDS`. `limits.py` limits the time of the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
ANSWER_SECONDS = 60.0


class GuardedConnection(H11Protocol):
    """A connection with a limit on the time of headers and of answers."""

    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

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
        elif self._header_timer is None:
            self._header_timer = self._start(HEADER_SECONDS)

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

    def _start(self, seconds: float) -> asyncio.TimerHandle:
        abort: Callable[[], None] = self.transport.abort
        return self.loop.call_later(seconds, abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
