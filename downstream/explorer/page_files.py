"""The files of the page. Their names are fixed: no path of a request reaches the file system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def page_files() -> dict[str, Path]:
    """Return the files by the path of their URL."""
    return {
        "/" if path.name == "index.html" else f"/page/{path.name}": path
        for path in sorted((Path(__file__).parent / "page").iterdir())
        if path.suffix in _TYPES
    }


def page_response(file: Path) -> Callable[[], Awaitable[Response]]:
    """Return a function that returns a file."""

    async def respond() -> Response:
        return Response(file.read_bytes(), media_type=_TYPES[file.suffix])

    return respond
