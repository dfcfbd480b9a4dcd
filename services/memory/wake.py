"""Wakes the worker: one notification for many queued jobs, outside of their transactions."""

from __future__ import annotations

import asyncio
import json

from services.common import errors, logs
from services.common.db import Database

_PAUSE_S = 0.05
_CHANNEL = "procrastinate_queue_v1#memory"
_PAYLOAD = json.dumps({"type": "job_inserted", "job_id": 0})


class Waker:
    """`poke` says that something was queued; a task of its own tells the worker.

    A notification that is lost costs at most the worker's polling interval.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen for pokes."""
        self._task = asyncio.create_task(self._run(), name="wake worker")

    def poke(self) -> None:
        """Something was queued and is committed."""
        self._event.set()

    async def stop(self) -> None:
        """Stop; what was poked and not told is found by polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._event.wait()
            self._event.clear()
            try:
                async with self._db.plain() as conn:
                    await conn.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, _PAYLOAD))
            except errors.DomainError as error:
                logs.get(__name__).warning("worker_not_woken", reason=error.reason)
            await asyncio.sleep(_PAUSE_S)
