"""Malformed, oversized, slow and hostile requests, as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

HOST = b"Host: 127.0.0.1\r\n"
POSTS = ("embed", "score", "predict", "neighbours", "classify", "tag")
VALID = {
    "embed": {"sentences": ["a"]},
    "score": {"sentences": ["a"]},
    "predict": {"sentence": "a", "position": 0},
    "neighbours": {"sentence": "a", "position": 0},
    "classify": {"texts": ["a"]},
    "tag": {"texts": ["a"]},
}
FIELDS = {"embed": "sentences", "score": "sentences", "classify": "texts", "tag": "texts"}


class Hostile(NamedTuple):
    """A request and the statuses that may answer it; without status, it is cut off."""

    name: str
    data: bytes
    statuses: tuple[int, ...]
    may_be_cut_off: bool = False


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1\r\n".encode(), HOST, b"Content-Type: application/json\r\n"]
    lines += [b"Content-Length: %d\r\n" % len(body), *headers]
    return b"".join(lines) + b"\r\n" + body


def get(path: str, *headers: bytes, method: str = "GET", host: bytes = HOST) -> bytes:
    return f"{method} {path} HTTP/1.1\r\n".encode() + host + b"".join(headers) + b"\r\n"


def all_requests() -> list[Hostile]:
    parts = (malformed(), methods(), origins(), paths(), bodies(), oversized(), slow())
    return [own for part in parts for own in part]


def malformed() -> Iterator[Hostile]:
    """Requests that are not HTTP, or have invalid headers."""
    lines = [
        b"nonsense",
        b"GET",
        b"GET /",
        b"GET / HTTP/9.9",
        b"GET / HTTP/",
        b"GET / HTTP/1.1 more",
        b"G\x00T / HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the start of TLS
        b"{}",
        b" GET / HTTP/1.1",
        b"GET / http/1.1",
        b"SSH-2.0-OpenSSH_9.6",
    ]
    for line in lines:
        yield Hostile(f"line {line!r}", line + b"\r\n" + HOST + b"\r\n", (400,), True)
    headers = [
        b"",  # no Host
        HOST + HOST,
        HOST + b"Host: evil.example\r\n",
        HOST + b"no colon\r\n",
        HOST + b"A\x00B: c\r\n",
        HOST + b": empty\r\n",
        HOST + b"A B: c\r\n",
        HOST + b"A: \x00\r\n",
        HOST + b"A: " + b"x" * (1 << 17) + b"\r\n",
        HOST + b"".join(b"A%d: %s\r\n" % (i, b"x" * 100) for i in range(2000)),
        HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n",
        HOST + b"Content-Length: -1\r\n",
        HOST + b"Content-Length: 1e3\r\n",
        HOST + b"Content-Length: 0x10\r\n",
        HOST + b"Transfer-Encoding: gzip\r\n",
        HOST + b"Transfer-Encoding: chunked, chunked\r\n",
    ]
    for i, header in enumerate(headers):
        data = b"POST /v1/embed HTTP/1.1\r\n" + header + b"\r\n"
        yield Hostile(f"headers {i}", data, (400, 413, 421, 422), True)
    chunked = b"POST /v1/embed HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    for chunk in (b"zz\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFFFFFF\r\nx", b"1\r\nxx\r\n", b"\r\n"):
        yield Hostile(f"chunk {chunk!r}", chunked + chunk, (400, 408, 413), True)


def methods() -> Iterator[Hostile]:
    for name in POSTS:
        for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"):
            yield Hostile(f"{method} {name}", get(f"/v1/{name}", method=method), (405,))
    for method in ("POST", "PUT", "DELETE"):
        yield Hostile(f"{method} model", get("/v1/model", method=method), (405,))
    yield Hostile("BREW", get("/v1/model", method="BREW"), (400,))  # not a method of HTTP
    yield Hostile("CONNECT", get("evil.example:443", method="CONNECT"), (400, 404, 405, 421), True)


def origins() -> Iterator[Hostile]:
    """Requests with the Host or the Origin of another site."""
    hosts = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "a@127.0.0.1"]
    for name in (*hosts, "127.0.0.1:x", "[::1", "0x7f.1", "2130706433", "127.1", "127.0.0.1%00"):
        for path in ("/", "/v1/model", "/healthz"):
            host = f"Host: {name}\r\n".encode()
            yield Hostile(f"host {name} {path}", get(path, host=host), (421,))
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://[::1]"):
        header = f"Origin: {origin}\r\n".encode()
        for name in ("embed", "score"):
            data = post(f"/v1/{name}", json.dumps(VALID[name]).encode(), header)
            yield Hostile(f"origin {origin} {name}", data, (403,))
    for site in (b"cross-site", b"same-site"):
        data = get("/v1/model", b"Sec-Fetch-Site: " + site + b"\r\n")
        yield Hostile(f"site {site!r}", data, (403,))


def paths() -> Iterator[Hostile]:
    names = ["../api.py", "..%2fapi.py", "%2e%2e/api.py", "..%5capi.py", "%252e%252e/api.py"]
    names += ["app.js/", "app.js%00", "app.js.map", "/etc/passwd", "....//api.py", "file:///etc"]
    for name in names:
        yield Hostile(f"path {name}", get(f"/page/{name}"), (404,))
    for path in ("/v1/runs/x", "/v1/runs/-1", "/v1/runs/1e9", "/v1/runs/0", "/v1/runs/..%2f"):
        yield Hostile(f"path {path}", get(path), (404, 422))
    for path in ("/docs", "/redoc", "/v1", "/v1/", "/v2/embed", "/.git/config", "/" + "a" * 8000):
        yield Hostile(f"path {path[:20]}", get(path), (404,))


def bodies() -> Iterator[Hostile]:
    """Bodies that are not JSON, or not what the schema describes."""
    raw = [b"", b"{", b"null", b"[]", b"1", b'"a"', b"\xff\xfe", b"[" * 50_000, b'{"a":' * 20_000]
    raw += [b'{"sentences": NaN}', b"9" * 10_000, b"{}" + b"\x00" * 100]
    for name in POSTS:
        for body in raw:
            yield Hostile(f"{name} {body[:20]!r}", post(f"/v1/{name}", body), (400, 404, 422))
        extra = json.dumps({**VALID[name], "path": "/etc/passwd"}).encode()
        yield Hostile(f"{name} extra field", post(f"/v1/{name}", extra), (422,))
    values: list[Any] = [None, "a", [], [1], [None], [[1]], [{"a": 1}], {"a": 1}, [["a b"]], [[""]]]
    for value in values:
        data = post("/v1/embed", json.dumps({"sentences": value}).encode())
        yield Hostile(f"embed {value!r}", data, (422,))
    surrogate = b'{"sentences": ["\\ud800"]}'
    yield Hostile("surrogate", post("/v1/embed", surrogate), (422,))
    for layers in ([1e30, 0, 0], [1], ["a"], "bottom", [float("nan")] * 3, [float("inf"), 0, 0]):
        body = json.dumps({"sentences": ["a"], "layers": layers}).encode()
        yield Hostile(f"layers {layers}", post("/v1/embed", body), (422,))
    for position in (-1, 1, 1 << 40, 0.5, "0", None):
        body = json.dumps({"sentence": "a", "position": position}).encode()
        yield Hostile(f"position {position}", post("/v1/predict", body), (422,))
    form = post("/v1/embed", b"sentences=a").replace(b"application/json", b"text/plain")
    yield Hostile("form", form, (422,))


def oversized() -> Iterator[Hostile]:
    for name, field in FIELDS.items():
        for what, texts in (
            ("texts", ["a"] * 65),
            ("words", ["a " * 2049]),
            ("characters", ["a" * 70_000]),
        ):
            body = json.dumps({field: texts}).encode()
            yield Hostile(f"{name} {what}", post(f"/v1/{name}", body), (404, 422))
        large = post(f"/v1/{name}", b" " * ((1 << 20) + 1))
        yield Hostile(f"{name} large body", large, (413,), True)
    head = b"POST /v1/embed HTTP/1.1\r\n" + HOST
    yield Hostile("declared", head + b"Content-Length: 99999999999\r\n\r\n", (413,))
    yield Hostile(
        "digits", head + b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n", (400, 413), True
    )
    chunks = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    data = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 17
    yield Hostile("chunked", data, (413,), True)


def slow() -> Iterator[Hostile]:
    """Requests that stop before their end."""
    for start in (b"", b"P", b"POST /v1/embed HTTP/1.1\r\n", b"POST /v1/embed HTTP/1.1\r\n" + HOST):
        yield Hostile(f"stops after {start!r}", start, (), True)
    whole = post("/v1/embed", json.dumps(VALID["embed"]).encode())
    for missing in (1, 5, 20):
        yield Hostile(f"{missing} bytes missing", whole[:-missing], (408,))
    chunked = b"POST /v1/embed HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"
    yield Hostile("chunk missing", chunked, (408,))
