"""Draining: calls that have begun finish, calls that come later are refused in a way that clients
retry elsewhere.

gRPC's own shutdown drops a call that arrives at the wrong moment as CANCELLED, which no client
retries; refusing first makes that moment one in which nothing arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.common.errors import DomainError
from services.common.grpc.interceptors.auth import OPEN_SERVICES
from services.common.grpc.interceptors.base import Interceptor, RpcCall


class DrainInterceptor(Interceptor):
    """Counts calls in flight; once closed, refuses new ones with UNAVAILABLE."""

    def __init__(self) -> None:
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self, timeout_s: float) -> bool:
        """Refuse new calls and wait for those in flight; False when some are left after a while."""
        self._closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Count the call, or refuse it. Health stays open: it is what says NOT_SERVING."""
        if call.service in OPEN_SERVICES:
            yield
            return
        if self._closed:
            raise DomainError(
                "DEPENDENCY_UNAVAILABLE",
                "The server is shutting down.",
                metadata={"service": call.service},
                retry_after_s=0.1,
            )
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()
