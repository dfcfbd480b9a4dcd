"""Deadlines: read from the caller, bound to the call, enforced here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from services.common import context, errors
from services.common.deadlines import Deadline
from services.common.grpc.interceptors.base import Interceptor, RpcCall


class DeadlineInterceptor(Interceptor):
    """A unary call without a deadline gets a default one; a stream without one may go on."""

    def __init__(self, default_s: float) -> None:
        self._default_s = default_s

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Bind the deadline and stop the handler when it has passed."""
        left: float | None = call.context.time_remaining()
        if left is None and not call.streaming:
            left = self._default_s
        if left is None:
            yield
            return
        deadline = Deadline.after(left)
        with context.bound(replace(context.current(), deadline=deadline)):
            try:
                async with asyncio.timeout(left) as scope:
                    yield
            except TimeoutError:
                if scope.expired():
                    raise errors.deadline_exceeded(call.name) from None
                raise
