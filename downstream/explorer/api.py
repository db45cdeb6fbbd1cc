"""The application: routes, errors, and the order of the middleware.

`create_app` returns an ASGI application. Its OpenAPI description is at /openapi.json.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import bilm
from bilm.errors import BilmError
from downstream.explorer.api_routes import make_router
from downstream.explorer.batching import BatchLimits, ClosedError, QueueFullError
from downstream.explorer.limits import BodyLimit, RequestLimits
from downstream.explorer.metrics import CONTENT_TYPE, Metrics
from downstream.explorer.page_files import page_files, page_response
from downstream.explorer.security import Access, Guard
from downstream.explorer.sentences import UnavailableError
from downstream.explorer.service import Loaded, Service

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1


@dataclass(frozen=True)
class AppSettings:
    """The settings of the application.

    `with_page` adds the web page.
    """

    access: Access = field(default_factory=Access)
    limits: RequestLimits = field(default_factory=RequestLimits)
    batch_limits: BatchLimits = field(default_factory=BatchLimits)
    with_page: bool = True


def create_app(loaded: Loaded, settings: AppSettings = AppSettings()) -> FastAPI:  # noqa: B008
    """Return the application for loaded models."""
    service = Service(loaded, settings.limits, settings.batch_limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.open()
        yield
        await service.close()

    # The pages of FastAPI that describe the API load scripts from another host.
    app = FastAPI(
        title="bilm",
        version=bilm.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.include_router(make_router(service))
    _add_plain_routes(app, service)
    if settings.with_page:
        _add_page(app)
    _add_error_handlers(app)
    app.add_middleware(_Counter, metrics=service.metrics)
    app.add_middleware(BodyLimit, limits=settings.limits)
    open_paths = tuple(page_files()) if settings.with_page else ()
    app.add_middleware(Guard, access=settings.access, open_paths=open_paths)
    return app


def _add_plain_routes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", summary="Whether the service is running")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/metrics", summary="Counters in the format of Prometheus", response_class=PlainTextResponse
    )
    async def metrics_text() -> Response:
        return Response(service.metrics.text(service.queued_words()), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    """Serve the files of the page, whose names are fixed."""
    for path, file in page_files().items():
        app.add_api_route(path, page_response(file), include_in_schema=False, methods=["GET"])


class _Counter:
    """Counts requests by route and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # Not the path of the request, which may be anything.
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.count_request(path, status, time.perf_counter() - start)


def _add_error_handlers(app: FastAPI) -> None:
    """Turn errors into answers without tracebacks; unexpected ones are logged."""

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [
            f"{'.'.join(map(_printable, problem['loc']))}: {problem['msg']}"
            for problem in error.errors()[:5]
        ]
        return _error(422, "; ".join(problems))

    async def rejected(request: Request, error: Exception) -> Response:
        return _error(404 if isinstance(error, UnavailableError) else 422, str(error))

    async def busy(request: Request, error: Exception) -> Response:
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return _error(503, "the service is busy; try again later", headers)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(error.status_code, str(error.detail), dict(error.headers or {}))

    async def unexpected(request: Request, error: Exception) -> Response:
        return _error(500, "internal error; the log of the service has the details")

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(BilmError, rejected)
    app.add_exception_handler(QueueFullError, busy)
    app.add_exception_handler(ClosedError, busy)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def _error(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": _printable(detail)}, status_code=status, headers=headers)


def _printable(value: Any) -> str:
    """Return text that can be encoded, although a request contained lone surrogates."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
