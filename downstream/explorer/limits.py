"""The limits of requests, and the middleware that enforces those of the body."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class RequestLimits:
    """The limits of one request. They also bound the size of its answer.

    Args:
        max_sentences: sentences or texts.
        max_words: words of all sentences.
        max_characters: characters of all sentences.
        max_body_bytes: bytes of the body.
        body_seconds: the time in which the body must arrive.
    """

    max_sentences: int = 64
    max_words: int = 2048
    max_characters: int = 65536
    max_body_bytes: int = 1 << 20
    body_seconds: float = 10.0


class BodyLimit:
    """Rejects bodies that are too large or arrive too slowly, before they are parsed."""

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        maximum = self._limits.max_body_bytes
        if not declared.isdigit() or int(declared[:20]) > maximum:
            await self._reject(413, f"the body is larger than {maximum:,} bytes", scope, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(receive)
        except TimeoutError:
            reason = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
            await self._reject(408, reason, scope, send)
            return
        if body is None:
            await self._reject(413, f"the body is larger than {maximum:,} bytes", scope, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large."""
        parts = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return bytes(parts)  # disconnected
            parts += message.get("body", b"")
            if len(parts) > self._limits.max_body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(parts)

    async def _reject(self, status: int, reason: str, scope: Scope, send: Send) -> None:
        headers = {"Connection": "close"}
        response = JSONResponse({"detail": reason}, status_code=status, headers=headers)
        await response(scope, _no_body, send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns the body first."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
