"""Every turn that waits for a group gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

from services.common.db import Database
from services.common.errors import DomainError
from services.memory.domain import Message, Role
from services.memory.grouping import MAX_TURNS, TurnWriter
from services.memory.store.turns import NewTurn

WAITING = 5 * MAX_TURNS


class _Broken:
    """A database whose driver fails in a way that nobody foresaw."""

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield self

    async def execute(self, *_: object) -> None:
        raise RuntimeError("unforeseen")


def _turn(number: int) -> NewTurn:
    return NewTurn(
        rpc="AppendTurn", request_id=str(number), request_hash=b"", user_id=f"u{number}",
        session_id="s", turn_id="", messages=(Message(Role.USER, "hello"),),
        event_time=datetime(2024, 5, 1, tzinfo=UTC), time_zone="UTC", flags=(), metadata={},
        tok_version="", terms=(), lock="", dedupe="",
    )  # fmt: skip


async def test_turns_behind_a_group_that_breaks_are_answered() -> None:
    writer = TurnWriter(cast("Database", _Broken()))
    async with asyncio.timeout(30):
        answers = await asyncio.gather(
            *(writer.append("t", _turn(n)) for n in range(WAITING)), return_exceptions=True
        )
    assert len(answers) == WAITING
    assert all(isinstance(a, DomainError) and a.reason == "INTERNAL" for a in answers)
