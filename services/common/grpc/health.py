"""Health and readiness: checks run in the background, ``grpc.health.v1`` answers from memory.

A service is SERVING when all of its checks passed in the last round: the database answers, its
schema is current, and whatever the service itself adds (a forward pass that went well).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from services.common import logs

Check = Callable[[], Awaitable[str | None]]
"""Returns None when all is well, else a short reason for the log."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class _Health(HealthServicer):  # type: ignore[misc]  # the package has no types
    """The stock servicer, whose Watch streams can be ended: a balancer that watches would otherwise
    hold every shutdown until its grace is over."""

    def __init__(self) -> None:
        super().__init__()
        self.ending = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Stream the status on every change, until the caller leaves or the server stops."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        ending = asyncio.ensure_future(self.ending.wait())
        try:
            await asyncio.wait({watching, ending}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            ending.cancel()
            await asyncio.gather(watching, ending, return_exceptions=True)


class Readiness:
    """Runs named checks every ``interval_s`` seconds and publishes the outcome.

    ``reasons`` says what is wrong, by check; empty means ready.
    """

    def __init__(
        self,
        checks: Iterable[tuple[str, Check]] = (),
        *,
        interval_s: float = 2.0,
        timeout_s: float = 2.0,
    ) -> None:
        self.servicer = _Health()
        self.reasons: dict[str, str] = {"start": "not checked yet"}
        self._checks = dict(checks)
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._services: list[str] = [""]
        self._task: asyncio.Task[None] | None = None
        self._draining = False
        self._log = logs.get(__name__)

    @property
    def ready(self) -> bool:
        """True when the last round found nothing wrong and no shutdown has begun."""
        return not self.reasons and not self._draining

    def add(self, name: str, check: Check) -> None:
        """Add a check; takes part from the next round on."""
        self._checks[name] = check

    async def start(self, services: Iterable[str]) -> None:
        """Publish for ``services`` (full names) and the server as a whole; the first round is done
        when this returns."""
        self._services = ["", *services]
        await self._publish()
        await self.check_now()
        self._task = asyncio.create_task(self._loop(), name="readiness")

    async def check_now(self) -> None:
        """Run one round of all checks, in parallel, and publish."""
        names = list(self._checks)
        # A check that breaks, however it does, is a check that fails; readiness itself goes on.
        results = await asyncio.gather(
            *(self._one(self._checks[name]) for name in names), return_exceptions=True
        )
        reasons = {
            name: type(why).__name__ if isinstance(why, BaseException) else why
            for name, why in zip(names, results, strict=True)
            if why
        }
        if reasons != self.reasons:
            self._log.info("readiness", ready=not reasons, **({"why": reasons} if reasons else {}))
        self.reasons = reasons
        await self._publish()

    async def drain(self) -> None:
        """Report NOT_SERVING from now on, whatever the checks say."""
        self._draining = True
        await self.servicer.enter_graceful_shutdown()

    def end_watches(self) -> None:
        """End the Watch streams; their callers have seen NOT_SERVING by now."""
        self.servicer.ending.set()

    async def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _one(self, check: Check) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await check()
        except TimeoutError:
            return f"no answer within {self._timeout_s:g} s"

    async def _publish(self) -> None:
        status = _NOT_SERVING if self.reasons else _SERVING
        for service in self._services:
            await self.servicer.set(service, status)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.check_now()
