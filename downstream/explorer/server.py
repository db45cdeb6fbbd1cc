"""Serve the application with uvicorn until SIGTERM or SIGINT; requests under way are finished."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType

import uvicorn
from fastapi import FastAPI

from bilm.errors import ConfigError
from downstream.explorer.connections import GuardedConnection

DEFAULT_PORT = 8765
GRACE_SECONDS = 30  # for requests under way, after a signal
KEEP_ALIVE_SECONDS = 15
MAX_CONNECTIONS = 512  # further ones are answered with 503


@dataclass(frozen=True)
class Endpoint:
    """A bound socket, and the address of the page."""

    socket: socket.socket
    host: str

    @classmethod
    def bind(cls, host: str, port: int | None) -> Endpoint:
        """Bind to an address before the model is loaded, to report a used port at once.

        Without a port, use `DEFAULT_PORT`, or a free one if it is in use.
        """
        if port is None:
            with suppress(ConfigError):
                return cls.bind(host, DEFAULT_PORT)
            port = 0
        with _reported(host, port):
            (family, kind, protocol, _, address) = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            own = socket.socket(family, kind, protocol)
            try:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                own.bind(address)
            except OSError:
                own.close()
                raise
        return cls(own, host)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def listen(self) -> None:
        """Accept connections; they wait until the server runs."""
        with _reported(self.host, self.socket.getsockname()[1]):
            self.socket.listen(128)

    @property
    def name(self) -> str:
        """The name of this machine in the address; for all interfaces, its host name."""
        return socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host

    @property
    def address(self) -> str:
        """The URL of the service, without a path."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"http://{name}:{self.socket.getsockname()[1]}"


@contextmanager
def _reported(host: str, port: int) -> Iterator[None]:
    """Turn an error of the system into one that names the address."""
    try:
        yield
    except OSError as e:
        raise ConfigError(
            f"cannot use the address {host}:{port}: {e.strerror or e}; choose another --port or "
            "--host (--port 0 chooses a free one)"
        ) from None


def config_of(app: FastAPI) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=GuardedConnection,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )


def serve(app: FastAPI, endpoint: Endpoint) -> None:
    """Serve until a signal arrives."""
    # uvicorn raises the signal again when it has stopped; SIGTERM is then a normal exit.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    # The objects of the libraries and of the model live until the end. Without this, the garbage
    # collector visits all of them again and again, and answers wait for it.
    gc.collect()
    gc.freeze()
    uvicorn.Server(config_of(app)).run(sockets=[endpoint.socket])
