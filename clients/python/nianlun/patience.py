"""Which calls wait, until their deadline, for a service that restarts.

A service that was there before is waited for, by calls that the contract lets repeat: a restart is
a slow call. One that was never reached fails at once: its address is wrong, or it is down.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import grpc

from nianlun import transport


@cache
def repeatable_paths() -> frozenset[str]:
    """The paths (``/package.Service/Method``) of all methods that may be sent again."""
    return frozenset(
        f"/{method.containing_service.full_name}/{method.name}"
        for service in transport.service_descriptors()
        for method in service.methods
        if transport.is_repeatable(method)
    )


class Patience:
    """One channel's memory of whether its service ever answered."""

    def __init__(self, repeatable: frozenset[str] | None = None) -> None:
        self._repeatable = repeatable_paths() if repeatable is None else repeatable
        self._reached = False
        self._noting: set[asyncio.Task[None]] = set()

    def waits(self, path: str | bytes, chosen: bool | None) -> bool | None:
        """``wait_for_ready`` of a call to this path; what the caller has chosen holds."""
        if chosen is not None or not self._reached:
            return chosen
        name = path.decode("ascii") if isinstance(path, bytes) else path
        return True if name in self._repeatable else None

    def watch(self, call: Any) -> Any:
        """Learn from a call of ``grpc`` when it has ended; the call."""
        if not self._reached:
            call.add_done_callback(self._ended)
        return call

    def watch_async(self, call: Any) -> Any:
        """Learn from a call of ``grpc.aio`` when it has ended; the call."""
        if not self._reached:
            call.add_done_callback(self._ended_async)
        return call

    def _ended(self, call: Any) -> None:
        self._note(call.code(), call.trailing_metadata())

    def _ended_async(self, call: Any) -> None:
        # Code and metadata are there, but only coroutines hand them over.
        task = asyncio.get_running_loop().create_task(self._read(call))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _read(self, call: Any) -> None:
        self._note(await call.code(), await call.trailing_metadata())

    def _note(self, code: grpc.StatusCode, trailing: Any) -> None:
        # What gRPC says of its own, that nobody is there for one, comes without metadata.
        if code is grpc.StatusCode.OK or trailing:
            self._reached = True
