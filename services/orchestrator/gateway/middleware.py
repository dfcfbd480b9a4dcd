"""What every request passes: an id, a size limit, and headers that keep browsers careful."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.common import logs
from services.orchestrator.gateway.backends import request_id
from services.orchestrator.gateway.errors import HttpError, http_response

_SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}


class RequestMiddleware:
    """Gives requests an id, logs them without their content, and adds headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = logs.get(__name__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request.state.request_id = request_id(request)
        begun = time.monotonic()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request.state.request_id
                headers["openai-processing-ms"] = str(int((time.monotonic() - begun) * 1000))
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            # Probes come every few seconds and would drown the rest.
            level = logging.DEBUG if request.url.path == "/healthz" else logging.INFO
            self._log.log(
                level,
                "http",
                method=request.method,
                path=request.url.path,
                status=status,
                ms=round((time.monotonic() - begun) * 1000, 1),
                request_id=request.state.request_id,
            )


class BodyLimit:
    """413 for bodies above the limit, whether they announce their length or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > self._limit:
            await http_response(self._error())(scope, receive, send)
            return
        seen = 0

        async def receiving() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._limit:
                    raise self._error()
            return message

        await self._app(scope, receiving, send)

    def _error(self) -> HttpError:
        return HttpError(413, f"The body exceeds {self._limit} bytes", code="message_too_large")
