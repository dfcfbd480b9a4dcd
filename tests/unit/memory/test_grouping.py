"""The writer of turns over a database that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from services.common.db import Database
from services.common.errors import DomainError
from services.memory.grouping import MAX_TURNS, TurnWriter
from services.memory.store.turns import AppendReceipt, NewTurn

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeDatabase:
    """Keeps what it was asked to write; `before` may fail or wait, `busy` users are left out."""

    citus = False

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.busy: set[str] = set()
        self.before: Callable[[list[str], bool], Awaitable[None]] | None = None

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[FakeDatabase]:
        yield self

    async def execute(self, _: str, parameters: tuple[Any, bool]) -> FakeCursor:
        records, wait = parameters[0].obj, parameters[1]
        ids = [r["turn_id"] for r in records]
        if self.before is not None:
            await self.before(ids, wait)
        left_out = set() if wait else self.busy
        self.groups.append([r["turn_id"] for r in records if r["user"] not in left_out])
        return FakeCursor([_row(r, r["user"] in left_out) for r in records])


class FakeCursor:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    async def fetchall(self) -> list[dict[str, Any]]:
        return self._rows


def _row(record: dict[str, Any], busy: bool) -> dict[str, Any]:
    if busy:
        return {"busy": True, "replayed": False, "request_hash": None, "receipt": None}
    receipt = {
        "turn_id": record["turn_id"], "sequence": 1, "position": 1, "job_id": "j",
        "event_time": _NOON.timestamp(),
    }  # fmt: skip
    return {"busy": False, "replayed": False, "request_hash": b"h", "receipt": receipt}


def _turn(turn_id: str, user_id: str) -> NewTurn:
    return NewTurn(
        rpc="rpc", request_id=turn_id, request_hash=b"h", user_id=user_id, session_id="s",
        turn_id=turn_id, messages=(), event_time=_NOON, time_zone="UTC", flags=(), metadata={},
        tok_version="1", terms=(), lock="l", dedupe="d",
    )  # fmt: skip


def _append(writer: TurnWriter, turn_id: str, user_id: str = "u") -> asyncio.Task[AppendReceipt]:
    return asyncio.create_task(writer.append("t", _turn(turn_id, user_id)))


def _writer(db: FakeDatabase) -> TurnWriter:
    return TurnWriter(cast("Database", db))


async def test_those_who_wait_behind_a_group_that_broke_are_written() -> None:
    db = FakeDatabase()
    gate = asyncio.Event()
    on_their_way: asyncio.Queue[list[str]] = asyncio.Queue()

    async def before(ids: list[str], wait: bool) -> None:
        if ids[0].startswith("broken"):
            on_their_way.put_nowait(ids)
            await gate.wait()
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "a fault nobody foresaw")

    db.before = before
    writer = _writer(db)
    broken = _append(writer, "broken")
    assert await on_their_way.get() == ["broken"]
    behind = [_append(writer, f"good{n}", f"v{n}") for n in range(3)]
    await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(30):
        receipts = await asyncio.gather(*behind)
        (failed,) = await asyncio.gather(broken, return_exceptions=True)
    assert [r.turn_id for r in receipts] == ["good0", "good1", "good2"]
    assert isinstance(failed, DomainError)


@pytest.mark.parametrize("gone", [0, 3])
async def test_turns_of_a_held_user_wait_in_bounded_groups_and_those_given_up_are_not_written(
    gone: int,
) -> None:
    db = FakeDatabase()
    db.busy = {"u"}
    free = asyncio.Event()

    held = asyncio.Event()

    async def before(ids: list[str], wait: bool) -> None:
        if wait:
            held.set()
            await free.wait()

    db.before = before
    writer = _writer(db)
    first = _append(writer, "first")
    await held.wait()
    tasks = [_append(writer, f"{n:03}") for n in range(3 * MAX_TURNS)]
    # Nothing here waits for anything but the loop: some turns of it, and all stand in the queue.
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks[:gone]:
        task.cancel()
    await asyncio.sleep(0)
    free.set()
    async with asyncio.timeout(30):
        await asyncio.gather(first, *tasks[gone:])
    written = [group for group in db.groups if group]
    assert max(map(len, written)) == MAX_TURNS
    assert sorted(i for group in written for i in group) == [
        *(f"{n:03}" for n in range(gone, 3 * MAX_TURNS)),
        "first",
    ]
