"""The server over streamable HTTP: a guard in front, no state behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nianlun_mcp.callers import HttpCallers, RefusedError
from nianlun_mcp.desk import Desk
from nianlun_mcp.server import build
from nianlun_mcp.settings import HttpSettings, McpSettings

_LOOPBACK = ("127.0.0.1:*", "localhost:*", "[::1]:*", "127.0.0.1", "localhost", "[::1]")


class Guard:
    """Answers requests without a good key and a user itself; nothing behind it sees them."""

    def __init__(self, app: ASGIApp, callers: HttpCallers, desk: Desk) -> None:
        self._app = app
        self._callers = callers
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = self._callers.of(Headers(scope=scope))
            await self._desk.check(caller.key)
        except RefusedError as error:
            await _refusal(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def application(settings: McpSettings, http: HttpSettings) -> Starlette:
    """The ASGI application: the tools at ``http.path``, ``/healthz`` without a key.

    Stateless: each request stands for itself with the key it brings, so that replicas need no
    affinity and a session id that leaks is worth nothing.
    """
    desk = Desk(settings)
    callers = HttpCallers(settings)
    server = build(settings, callers, desk)
    inner = server.streamable_http_app(
        streamable_http_path=http.path,
        stateless_http=True,
        json_response=True,
        max_request_body_size=http.max_body_bytes,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*_LOOPBACK, *http.hosts],
            allowed_origins=[
                *(f"http://{host}" for host in _LOOPBACK),
                *http.origins,
            ],
        ),
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):
            yield
        await desk.close()

    return Starlette(
        routes=[
            Route("/healthz", _healthz, methods=["GET"]),
            Mount("/", app=Guard(inner, callers, desk)),
        ],
        lifespan=lifespan,
    )


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _refusal(error: RefusedError) -> Response:
    headers = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 503:
        headers["retry-after"] = "2"
    return JSONResponse({"error": str(error)}, status_code=error.status, headers=headers)
