"""Hostile requests to a real process: each gets a documented status, or is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from tests.bilm.embedding.elmo_models import tiny
from tests.conftest import ROOT
from tests.downstream.explorer.hostile_requests import Hostile, all_requests
from tests.downstream.explorer.serving import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.launch]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("hostile") / "model"
    tiny().save_pretrained(directory)
    with serving(directory) as own:
        yield own


def answer_to(server: Server, hostile: Hostile) -> bytes:
    """Return the answer, or nothing if the connection was cut off."""
    answer = b""
    with server.connect() as client:
        try:
            client.sendall(hostile.data)
            while b"\r\n\r\n" not in answer and (part := client.recv(65536)):
                answer += part
        except ConnectionError:
            pass
    return answer


def problem_of(hostile: Hostile, answer: bytes) -> str | None:
    if b"Traceback" in answer or b"site-packages" in answer:
        return f"{hostile.name}: {answer!r}"
    if not answer and hostile.may_be_cut_off:
        return None
    status = int(answer[9:12] or 0)
    return None if status in hostile.statuses else f"{hostile.name}: {answer[:300]!r}"


def test_hostile_requests_get_a_documented_status(server: Server) -> None:
    requests = all_requests()
    assert len(requests) >= 200
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda own: answer_to(server, own), requests))
    problems = [problem_of(*pair) for pair in zip(requests, answers, strict=True)]
    assert not any(problems), "\n".join(filter(None, problems))
    page = Path(ROOT / "docs" / "explorer.md").read_text(encoding="utf-8")
    documented = {int(status) for status in re.findall(r"\| (\d{3}) \|", page)}
    assert {int(answer[9:12]) for answer in answers if answer} <= documented
    # The service still answers.
    status, _, answer = server.post("/v1/embed", {"sentences": [["the", "bank"]]})
    assert (status, answer["sentences"][0]["shape"]) == (200, [3, 2, 12])
    assert server.process.poll() is None
