"""A full queue answers 503 with Retry-After, and other requests are still answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from bilm.embedding.embedder import Embedder
from downstream.explorer.api import AppSettings, create_app
from downstream.explorer.batching import BatchLimits
from tests.downstream.explorer.small_models import load

SECONDS = 60


def test_full_queue_answers_503(monkeypatch: pytest.MonkeyPatch) -> None:
    started, gate = threading.Event(), threading.Event()
    embed = Embedder.embed

    def slow(self: Embedder, sentences: Sequence[list[str]]) -> Any:
        started.set()
        assert gate.wait(SECONDS)
        return embed(self, sentences)

    monkeypatch.setattr(Embedder, "embed", slow)
    settings = AppSettings(batch_limits=BatchLimits(max_queued_words=8))
    app = create_app(load(), settings)

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            def send() -> asyncio.Task[httpx.Response]:
                body = {"sentences": ["the bank floods"]}
                return asyncio.create_task(client.post("/v1/embed", json=body, timeout=SECONDS))

            first = send()
            await asyncio.to_thread(started.wait, SECONDS)
            waiting = send()
            while not (await client.get("/metrics")).text.count("bilm_queued_words 5\n"):
                await asyncio.sleep(0.01)
            rejected = await send()
            assert (await client.get("/healthz")).status_code == 200
            gate.set()
            return [await first, await waiting, rejected]

    first, waiting, rejected = asyncio.run(run())
    assert (first.status_code, waiting.status_code, rejected.status_code) == (200, 200, 503)
    assert int(rejected.headers["retry-after"]) >= 1
