"""A small task that is done again and again while a process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.common import logs


class Periodic:
    """Calls `action`, which must be quick and not block, every `interval_s` seconds."""

    def __init__(self, name: str, interval_s: float, action: Callable[[], object]) -> None:
        self._name = name
        self._interval_s = interval_s
        self._action = action
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, inside the running loop."""
        self._task = asyncio.create_task(self._loop(), name=self._name)
        self._task.add_done_callback(self._tell_failure)

    async def stop(self) -> None:
        """Ends; safe when it never began."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self._action()

    def _tell_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.get(__name__).error("periodic_failed", name=self._name, exc_info=error)
