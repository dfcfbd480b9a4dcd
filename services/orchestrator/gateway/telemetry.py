"""What is told of every HTTP request: a span and metrics, by OpenTelemetry's conventions.

The project's metrics are those of prometheus_client, in one registry a process, and so are these; a
library that instruments ASGI brings a second kind, which that registry does not hold.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.common.telemetry import Telemetry

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
# As the conventions advise, and beyond: an answer that streams takes longer.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120)
_PROBE = "/healthz"
_GONE, _BROKEN = 499, 500


@dataclass(frozen=True)
class HttpMetrics:
    """The HTTP metrics of one process. Paths are counted by their route, so that there are few."""

    seconds: Histogram
    active: Gauge

    @classmethod
    def create(cls, registry: CollectorRegistry) -> HttpMetrics:
        """Fresh metrics in this registry."""
        return cls(
            seconds=Histogram(
                "http_server_request_duration_seconds",
                "Wall time of HTTP requests, streams to their end; its count is that of requests.",
                ["http_request_method", "http_route", "http_response_status_code"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            active=Gauge(
                "http_server_active_requests",
                "HTTP requests being served.",
                ["http_request_method"],
                registry=registry,
            ),
        )


@dataclass
class _Exchange:
    """One request, and what has become of it so far; an empty route where none takes it."""

    scope: Scope
    method: str
    route: str
    status: int | None = None


class TelemetryMiddleware:
    """Counts and times requests, and opens a server span that continues the caller's trace."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes
        self._tracer = telemetry.tracer
        self._metrics = HttpMetrics.create(telemetry.metrics.registry)
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        exchange = _Exchange(scope, method, _template(self._routes, scope))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            await send(message)

        with self._counted(exchange), self._traced(exchange):
            ended = False
            try:
                await self._app(scope, receive, sending)
                ended = True
            except asyncio.CancelledError:
                exchange.status = exchange.status or _GONE
                raise
            finally:
                if not ended:
                    # The server's outermost handler answers it, out of this middleware's sight.
                    exchange.status = exchange.status or _BROKEN

    @contextmanager
    def _counted(self, exchange: _Exchange) -> Iterator[None]:
        active = self._metrics.active.labels(exchange.method)
        active.inc()
        started = time.perf_counter()
        try:
            yield
        finally:
            active.dec()
            status = "" if exchange.status is None else str(exchange.status)
            self._metrics.seconds.labels(exchange.method, exchange.route, status).observe(
                time.perf_counter() - started
            )

    @contextmanager
    def _traced(self, exchange: _Exchange) -> Iterator[None]:
        scope = exchange.scope
        if scope["path"] == _PROBE:
            # Probes come every few seconds and would drown the rest.
            yield
            return
        with self._tracer.start_as_current_span(
            f"{exchange.method} {exchange.route}".strip(),
            context=self._propagator.extract(Headers(scope=scope)),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            finally:
                _describe(span, exchange)


def _template(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """The template of the route that takes a request, as the router chooses it; empty for none."""
    partly = ""
    for route in routes:
        match, _ = route.matches(scope)
        if match is Match.NONE:
            continue
        template = str(getattr(route, "path_format", None) or getattr(route, "path", ""))
        if match is Match.FULL:
            return template
        partly = partly or template
    return partly


def _describe(span: Span, exchange: _Exchange) -> None:
    """The attributes of the span of a request that has ended. Neither query nor body."""
    scope = exchange.scope
    span.set_attribute("http.request.method", exchange.method)
    span.set_attribute("url.scheme", scope.get("scheme", "http"))
    span.set_attribute("url.path", scope["path"])
    if exchange.route:
        span.set_attribute("http.route", exchange.route)
    request_id = scope.get("state", {}).get("request_id")
    if request_id:
        span.set_attribute("nianlun.request_id", request_id)
    if exchange.status is not None:
        span.set_attribute("http.response.status_code", exchange.status)
        if exchange.status >= _BROKEN:
            span.set_attribute("error.type", str(exchange.status))
            span.set_status(Status(StatusCode.ERROR))
