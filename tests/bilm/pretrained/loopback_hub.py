"""A hub on the loopback interface with the few requests that downloads and uploads need."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """The repositories of the hub, each with its files, and the address of the hub."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.address = ""


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub in a thread until the block ends."""
    hub = Hub()

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        self.served.requests.append(format % args)

    def do_HEAD(self) -> None:
        self._get(with_body=False)

    def do_GET(self) -> None:
        self._get(with_body=True)

    def _get(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            name = "/".join(path.split("/")[3:5])
            files = self.served.repositories.get(name)
            if files is None:
                self._answer(
                    404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"}
                )
            elif "/tree/" in path:
                listed = [
                    {"type": "file", "path": file, "size": len(data), "oid": _etag(data)}
                    for file, data in files.items()
                ]
                self._answer(200, json.dumps(listed).encode())
            else:
                siblings = [{"rfilename": file} for file in files]
                info = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}
                info |= {"private": False, "tags": [], "downloads": 0, "likes": 0}
                self._answer(200, json.dumps(info).encode())
            return
        owner, repository, _, _, file = path.strip("/").split("/", 4)
        data = self.served.repositories[f"{owner}/{repository}"][file]
        headers = {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": COMMIT}
        self._answer(200, data if with_body else b"", headers, len(data))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            tree = json.loads(body)
            name = (
                f"{tree['organization']}/{tree['name']}"
                if tree.get("organization")
                else tree["name"]
            )
            self.served.repositories.setdefault(name, {})
            self._answer(200, json.dumps({"url": f"{self.served.address}/{name}"}).encode())
        elif path.endswith("/validate-yaml") or path == "/api/validate-yaml":
            self._answer(200, b'{"errors": [], "warnings": []}')
        elif "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._answer(200, json.dumps({"files": files}).encode())
        elif "/commit/" in path:
            name = "/".join(path.split("/")[3:5])
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    content = base64.b64decode(value["content"])
                    self.served.repositories[name][value["path"]] = content
            done = {"success": True, "commitOid": COMMIT}
            done["commitUrl"] = f"{self.served.address}/{name}/commit/{COMMIT}"
            self._answer(200, json.dumps(done).encode())
        else:
            self._answer(404, b"{}")

    def _answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
