from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from fastapi.testclient import TestClient

from bilm.errors import ConfigError
from downstream.explorer.api import AppSettings, create_app
from downstream.explorer.security import Access, is_loopback
from tests.downstream.explorer.small_models import load

BASE = "http://127.0.0.1:8765"
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(load()), base_url=BASE) as own:
        yield own


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "[::1]:8765", "LOCALHOST."])
def test_accepts_names_of_this_machine(client: TestClient, host: str) -> None:
    assert client.get("/v1/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "a@127.0.0.1:x", "localhost/.."]
)
def test_rejects_other_names(client: TestClient, host: str) -> None:
    for path in ("/", "/v1/model", "/healthz"):
        assert client.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_rejects_requests_of_other_sites(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/v1/embed", json={"sentences": ["a"]}, headers=headers)
    assert answer.status_code == 403


def test_accepts_requests_of_its_own_page(client: TestClient) -> None:
    headers = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/embed", json={"sentences": ["a"]}, headers=headers).is_success


def test_sends_no_cors_headers_and_a_strict_policy(client: TestClient) -> None:
    for path in ("/", "/v1/model", "/v1/nothing", "/page/app.js"):
        headers = client.get(path, headers={"Origin": BASE}).headers
        assert "access-control-allow-origin" not in headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert client.options("/v1/embed", headers=preflight).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/page/../api.py", "/page/..%2fapi.py", "/page/%2e%2e/api.py", "/page//etc/passwd", "/page/"],
)
def test_paths_do_not_reach_the_file_system(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_requires_the_token() -> None:
    settings = AppSettings(Access("0.0.0.0", TOKEN, names=["machine.example"]))
    with TestClient(create_app(load(), settings), base_url="http://machine.example") as client:
        assert client.get("/").status_code == 200  # the page itself contains no data
        assert client.get("/healthz").status_code == 200
        for value in (None, "Bearer wrong", f"Basic {TOKEN}", "Bearer ü", f"Bearer {TOKEN}x"):
            headers = {} if value is None else {"Authorization": value.encode("utf-8")}
            for path in ("/v1/model", "/metrics", "/openapi.json"):
                answer = client.get(path, headers=headers)  # type: ignore[arg-type]
                assert answer.status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}".encode()}
        assert client.get("/v1/model", headers=headers).status_code == 200  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("0.0.0.0", None, "set a token in the environment variable BILM_TOKEN"),
        ("192.168.1.2", None, "--insecure"),
        ("127.0.0.1", "short", "it must have at least 16"),
    ],
)
def test_rejects_unsafe_settings(host: str, token: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Access(host, token)


def test_insecure_allows_other_machines_without_token() -> None:
    assert Access("0.0.0.0", insecure=True).token is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("::", False),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_recognizes_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
