"""Who may use the service: the address, the Host and Origin headers, and the token.

A page of another site can send requests to a service on this machine, and with DNS rebinding it
could also read the answers. Therefore the Host header must name this machine, and requests that
another site started are rejected. A service that other machines can reach requires a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bilm.errors import ConfigError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

MIN_TOKEN_CHARACTERS = 16

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{0,5})?")

# Paths that need no token: they contain no data of the user.
_OPEN_PATHS = ("/healthz",)

_VERSIONS = ("1.0", "1.1")

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]

_RAW_NAMES = frozenset(name for name, _ in _RAW_HEADERS)


@dataclass(frozen=True)
class Access:
    """Who may use the service.

    Args:
        host: the address to bind to.
        token: required in the header `Authorization: Bearer TOKEN`, if it is set.
        names: further names that the Host header may contain.
        insecure: allow an address that other machines can reach without a token.
    """

    host: str = "127.0.0.1"
    token: str | None = None
    names: Collection[str] = ()
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and (
            len(self.token) < MIN_TOKEN_CHARACTERS or not self.token.isascii()
        ):
            raise ConfigError(
                f"the token has {len(self.token)} characters; it must have at least "
                f"{MIN_TOKEN_CHARACTERS}, all of them ASCII. `python -c 'import secrets; "
                "print(secrets.token_urlsafe())'` prints a suitable one"
            )
        if not is_loopback(self.host) and self.token is None and not self.insecure:
            raise ConfigError(
                f"--host is {self.host}, which other machines can reach; set a token in the "
                "environment variable BILM_TOKEN, or pass --insecure to serve without one"
            )

    @property
    def host_names(self) -> frozenset[str]:
        """The names that the Host header may contain, in lower case."""
        return frozenset(name.lower() for name in (*LOOPBACK_NAMES, self.host, *self.names))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Rejects requests that `Access` does not allow, and adds headers to all answers."""

    def __init__(self, app: ASGIApp, access: Access, open_paths: Collection[str] = ()) -> None:
        self._app = app
        self._access = access
        self._names = access.host_names
        self._open_paths = frozenset([*_OPEN_PATHS, *open_paths])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [pair for pair in message["headers"] if pair[0] not in _RAW_NAMES]
                message["headers"] = own + _RAW_HEADERS
            await send(message)

        rejection = self._rejection(scope["path"], Headers(scope=scope))
        if scope["http_version"] not in _VERSIONS:
            rejection = JSONResponse({"detail": "the version of HTTP is not 1.1"}, status_code=400)
        if rejection is not None:
            await rejection(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _rejection(self, path: str, headers: Headers) -> JSONResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._names:
            detail = "the Host header does not name this service; `--allow-host NAME` allows a name"
            return JSONResponse({"detail": detail}, status_code=421)
        origin = headers.get("origin")
        is_foreign = origin is not None and origin.partition("://")[2] != hosts[0]
        from_other_site = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign or (from_other_site and path not in self._open_paths):
            detail = "requests from pages of other sites are not allowed"
            return JSONResponse({"detail": detail}, status_code=403)
        if self._access.token is None or path in self._open_paths:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode("latin-1", "replace")
        is_valid = hmac.compare_digest(given, self._access.token.encode("ascii"))
        if scheme.lower() != "bearer" or not is_valid:
            return JSONResponse(
                {"detail": "the header `Authorization: Bearer TOKEN` is missing or wrong"},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        return None


def _host_name(value: str) -> str:
    """Return the name of a Host header without its port, in lower case; "" if it is malformed."""
    match = _HOST.fullmatch(value)
    return "" if match is None else match["name"].strip("[]").rstrip(".").lower()
