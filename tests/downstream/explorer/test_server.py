"""The service as a real process: concurrent, slow and malformed clients, and signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from bilm.errors import ConfigError
from downstream.explorer import server as server_module
from downstream.explorer.server import Endpoint
from tests.bilm.embedding.elmo_models import tiny
from tests.conftest import ROOT
from tests.downstream.explorer.serving import DEADLINE_SECONDS, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.launch]

SENTENCES = [["the", "bank", f"number{i}", *["floods"] * (i % 7)] for i in range(24)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("server") / "model"
    tiny().save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(model) as own:
        yield own


def embed(server: Server, sentence: list[str]) -> Any:
    status, _, answer = server.post("/v1/embed", {"sentences": [sentence]})
    assert status == 200
    return answer


def test_concurrent_requests_get_identical_answers(server: Server, model: Path) -> None:
    alone = [embed(server, sentence) for sentence in SENTENCES]
    with ThreadPoolExecutor(12) as clients:
        for _ in range(3):
            together = list(clients.map(lambda s: embed(server, s), SENTENCES))
            assert together == alone  # bit for bit
    # A new process, without words in its table of encoded words.
    with serving(model) as other, ThreadPoolExecutor(12) as clients:
        assert list(clients.map(lambda s: embed(other, s), SENTENCES)) == alone


def test_slow_client_does_not_block_others(server: Server) -> None:
    with server.connect() as slow:
        slow.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"sent'
        )
        for sentence in SENTENCES[:3]:
            embed(server, sentence)
        answer = slow.recv(65536)  # after `RequestLimits.body_seconds`
        assert answer.startswith(b"HTTP/1.1 408")


def test_sigterm_finishes_what_is_under_way(model: Path) -> None:
    with serving(model) as server, ThreadPoolExecutor(4) as clients:
        server.wait_until_ready()
        long = [["the", "bank"] * 500]
        with server.connect() as client:
            body = json.dumps({"sentences": long}).encode()
            head = (
                "POST /v1/embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
            )
            client.sendall(head.encode())
            assert client.recv(1024).startswith(b"HTTP/1.1 100")  # the request is under way
            stopped = clients.submit(server.stop)
            client.sendall(body)
            parts = []
            while part := client.recv(1 << 20):
                parts.append(part)
        answer = b"".join(parts)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["sentences"][0]["shape"] == [
            3,
            1000,
            12,
        ]
        assert stopped.result(DEADLINE_SECONDS) == 0


def test_rejects_an_unsafe_address_and_a_used_port(model: Path, server: Server) -> None:
    def run(*flags: str) -> str:
        command = [sys.executable, "-m", "bilm", "explore", "--model", str(model), *flags]
        environment = {k: v for k, v in os.environ.items() if k != "BILM_TOKEN"}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 2
        return done.stderr

    assert "set a token" in run("--host", "0.0.0.0")
    assert "cannot use the address" in run("--port", str(server.port))


def test_uses_another_port_if_the_default_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with Endpoint.bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.socket.getsockname()[1]
        monkeypatch.setattr(server_module, "DEFAULT_PORT", port)
        with Endpoint.bind("127.0.0.1", None) as other:
            assert other.socket.getsockname()[1] not in (0, port)
        with pytest.raises(ConfigError, match="cannot use the address"):
            Endpoint.bind("127.0.0.1", port)
    with Endpoint.bind("127.0.0.1", None) as own:
        assert own.address == f"http://127.0.0.1:{port}"
