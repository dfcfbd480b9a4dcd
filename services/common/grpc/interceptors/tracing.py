"""OpenTelemetry spans of calls, continuing the caller's trace (W3C traceparent)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.common import context
from services.common.grpc.interceptors.base import Interceptor, RpcCall

_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
"""Codes that are the server's fault; OpenTelemetry leaves the status of the others unset."""


class TracingInterceptor(Interceptor):
    """One server span a call, with the code the call really ended with."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Open a span; its status follows the trail, which the errors interceptor writes."""
        with self._tracer.start_as_current_span(
            call.name,
            context=self._propagator.extract(call.metadata),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            span.set_attribute("rpc.system.name", "grpc")
            span.set_attribute("rpc.method", call.name)
            span.set_attribute("nianlun.request_id", context.current().request_id)
            cancelled = False
            try:
                yield
            except asyncio.CancelledError:
                cancelled = True
                raise
            finally:
                code = "CANCELLED" if cancelled else call.trail.code
                span.set_attribute("rpc.response.status_code", code)
                if call.trail.tenant_id:
                    span.set_attribute("nianlun.tenant", call.trail.tenant_id)
                if code in _SERVER_ERRORS:
                    span.set_attribute("error.type", code)
                    span.set_status(Status(StatusCode.ERROR, code))
