"""Turns that arrive together are written together.

Under load most of what a small write costs is the round trip, the commit and the wait for the
disk. While one group is on its way the next one gathers, and goes when no further turn is about to
join it; a turn that comes alone goes alone, at once. Each turn still succeeds or fails by itself:
what a group cannot write is tried alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

import psycopg

from services.common import errors, logs
from services.common.db import Database
from services.common.errors import DomainError
from services.memory.store import turns as store
from services.memory.store.turns import AppendReceipt, NewTurn

MAX_TURNS: Final = 32
MAX_CHARACTERS: Final = 200_000
_GATHER_S: Final = 0.005
_QUIET_ROUNDS: Final = 3
"""Rounds of the event loop without a new turn after which nobody is taken to be on the way."""


@dataclass
class _Waiting:
    tenant_id: str
    turn: NewTurn
    answer: asyncio.Future[AppendReceipt] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class TurnWriter:
    """Writes turns of one process. For one event loop; keeps nothing between calls."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: deque[_Waiting] = deque()
        self._apart: dict[tuple[str, str], deque[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False

    async def append(self, tenant_id: str, turn: NewTurn) -> AppendReceipt:
        """Write one turn. A caller that gives up before its turn is on its way writes nothing."""
        one = _Waiting(tenant_id, turn)
        self._waiting.append(one)
        self._start()
        return await one.answer

    def _start(self) -> None:
        if self._waiting and not self._running:
            self._running = True
            self._spawn(self._run())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        # In a context of its own: neither the caller nor the deadline of the call that happens to
        # be first are the group's.
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.get(__name__).error("turns_not_written", exc_info=error)
            # Those who wait behind the group that broke have nobody else to write them.
            self._start()

    async def _run(self) -> None:
        try:
            while group := _take(self._waiting):
                await self._write(group)
                await self._gather()
        finally:
            self._running = False

    async def _gather(self) -> None:
        """Let calls that are being worked on bring their turns: one statement for ten turns costs
        a third of ten statements."""
        until = time.monotonic() + _GATHER_S
        quiet = 0
        while (
            0 < len(self._waiting) < MAX_TURNS
            and quiet < _QUIET_ROUNDS
            and time.monotonic() < until
        ):
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = 0 if len(self._waiting) > before else quiet + 1

    async def _write(self, group: Sequence[_Waiting]) -> None:
        receipts = await self._try(group, wait=False)
        for one, receipt in zip(group, receipts, strict=True):
            if receipt is None and not one.answer.done():
                self._set_apart(one)

    def _set_apart(self, one: _Waiting) -> None:
        """Its user is held by somebody, or the group failed: write it without the others. Turns of
        one user wait together: one connection for all of them."""
        key = (one.tenant_id, one.turn.user_id)
        waiting = self._apart.get(key)
        if waiting is not None:
            waiting.append(one)
            return
        self._apart[key] = deque([one])
        self._spawn(self._run_apart(key))

    async def _run_apart(self, key: tuple[str, str]) -> None:
        try:
            while together := _take(self._apart[key]):
                receipts = await self._try(together, wait=True)
                for one, receipt in zip(together, receipts, strict=True):
                    if receipt is None and not one.answer.done():
                        # The whole failed, perhaps for one turn's sake.
                        await self._try([one], wait=True)
        finally:
            for one in self._apart.pop(key):
                _fail(one, errors.internal("a turn was not written"))

    async def _try(self, group: Sequence[_Waiting], *, wait: bool) -> list[AppendReceipt | None]:
        """Write and answer; None for a turn that is not written. A failure is the answer of a turn
        that was tried alone."""
        turns = [(w.tenant_id, w.turn) for w in group]
        try:
            # One statement is the whole transaction: it names the tenants itself. Citus passes on
            # what it sets within a transaction block only.
            async with self._db.untenanted() if self._db.citus else self._db.plain() as conn:
                receipts = await store.append_all(conn, turns, wait=wait)
        except (DomainError, psycopg.Error) as error:
            if len(group) == 1:
                _fail(group[0], error)
            return [None] * len(group)
        except BaseException:
            for one in group:
                _fail(one, errors.internal("a turn was not written"))
            raise
        for one, receipt in zip(group, receipts, strict=True):
            if receipt is not None and not one.answer.done():
                one.answer.set_result(receipt)
        return receipts


def _take(waiting: deque[_Waiting]) -> list[_Waiting]:
    """The next group of those who still wait, in the order in which the database locks users."""
    group: list[_Waiting] = []
    size = 0
    while waiting and len(group) < MAX_TURNS and size < MAX_CHARACTERS:
        one = waiting.popleft()
        if one.answer.done():
            continue
        group.append(one)
        size += sum(len(m.text) for m in one.turn.messages)
    return sorted(group, key=lambda w: (w.tenant_id, w.turn.user_id))


def _fail(one: _Waiting, error: Exception) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)
