"""Prometheus metrics of calls: count by code, wall time, number in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.common.grpc.interceptors.base import Interceptor, RpcCall
from services.common.telemetry import Metrics


class MetricsInterceptor(Interceptor):
    """Counts calls. Names are those of registered handlers, so their number is bounded."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Count and time the call."""
        started = time.perf_counter()
        self._metrics.rpcs_in_flight.inc()
        code: str | None = None
        try:
            yield
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._metrics.rpcs_in_flight.dec()
            self._metrics.rpc_seconds.labels("grpc", call.name, code or call.trail.code).observe(
                time.perf_counter() - started
            )
