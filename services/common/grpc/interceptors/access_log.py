"""One log line a call: request id, tenant, rpc, code, milliseconds. Never the text of a user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.common import logs
from services.common.grpc.interceptors.base import Interceptor, RpcCall

_QUIET = frozenset({"grpc.health.v1.Health"})


class AccessLogInterceptor(Interceptor):
    """Logs calls when they end; health checks only at DEBUG, faults of ours as errors."""

    def __init__(self) -> None:
        self._log = logs.get("nianlun.access")

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Measure, then tell."""
        started = time.perf_counter()
        try:
            yield
        except asyncio.CancelledError:
            call.trail.code = "CANCELLED"
            raise
        finally:
            self._tell(call, (time.perf_counter() - started) * 1000)

    def _tell(self, call: RpcCall, ms: float) -> None:
        trail = call.trail
        fields: dict[str, object] = {"code": trail.code, "ms": round(ms, 1), "rpc": call.name}
        if trail.tenant_id:
            fields["tenant"] = trail.tenant_id
        if trail.reason:
            fields["reason"] = trail.reason
        if trail.degradations:
            fields["degraded"] = sorted(set(trail.degradations))
        if call.service in _QUIET:
            self._log.debug("rpc", **fields)
        elif trail.code in ("INTERNAL", "UNKNOWN"):
            self._log.error("rpc", detail=trail.detail, **fields)
        else:
            if trail.detail:
                fields["detail"] = trail.detail
            self._log.info("rpc", **fields)
