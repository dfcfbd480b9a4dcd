"""Turns that arrive together are written together, and still each for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import psycopg
import pytest

from nianlun.memory.v1 import memory_pb2 as pb
from tests.integration.memory.calls import Memory, rid, turn
from tests.support.db import Database, Tenant
from tests.support.stack import Stack


async def test_w13_one_request_id_twice_in_one_group_is_one_turn(memory: Memory) -> None:
    again = turn("u", "s1", "我喜欢爬山", request_id=rid())
    others = [memory.say(f"o{n}", f"我喜欢{n}号茶") for n in range(20)]
    same = [memory.stub.AppendTurn(again) for _ in range(8)]
    replies = await asyncio.gather(*others, *same)
    assert len({r.turn_id for r in replies[20:]}) == 1
    assert len({r.turn_id for r in replies}) == 21
    listed = await memory.stub.ListTurns(pb.ListTurnsRequest(user_id="u"))
    assert len(listed.turns) == 1


async def test_turns_of_one_group_keep_apart(memory: Memory) -> None:
    replies = await asyncio.gather(
        *(memory.say(f"g{n % 5}", f"记号 mark{n}x", session=f"s{n % 3}") for n in range(40))
    )
    assert len({r.turn_id for r in replies}) == 40
    for user in range(5):
        listed = await memory.stub.ListTurns(pb.ListTurnsRequest(user_id=f"g{user}"))
        said = {t.messages[0].text for t in listed.turns}
        assert said == {f"记号 mark{n}x" for n in range(40) if n % 5 == user}


async def test_a_reused_request_id_fails_alone(memory: Memory) -> None:
    used = rid()
    await memory.say("u", "原来的话", request_id=used)
    replies = await asyncio.gather(
        *(memory.say(f"v{n}", "你好") for n in range(10)),
        memory.say("u", "别的话", request_id=used),
        return_exceptions=True,
    )
    failed = [r for r in replies if isinstance(r, BaseException)]
    assert len(failed) == 1
    assert isinstance(failed[0], grpc.aio.AioRpcError)
    assert failed[0].code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("callers", [1, 12])
async def test_a_locked_user_delays_nobody_else(
    stack: Stack, database: Database, tenant: Tenant, callers: int
) -> None:
    memory = Memory(stack.client(tenant).memory)
    await memory.say("locked", "先有这个用户")
    await memory.settled()
    # Asynchronous: the services run in this loop, and one of them may hold the row just now.
    async with await psycopg.AsyncConnection.connect(database.owner_dsn) as conn:
        await conn.execute("SELECT set_config('nianlun.tenant_id', %s, false)", (tenant.tenant_id,))
        await conn.execute("SELECT 1 FROM memory.users WHERE user_id = 'locked' FOR UPDATE")
        waiting = [asyncio.create_task(memory.say("locked", f"等着 {n}")) for n in range(callers)]
        async with asyncio.timeout(30):
            while not await _held_up(conn):  # noqa: ASYNC110 - it happens in the service
                await asyncio.sleep(0.02)
        # Would never end if they waited for the lock.
        async with asyncio.timeout(60):
            await asyncio.gather(*(memory.say(f"free{n}", "不等") for n in range(callers)))
        assert not any(task.done() for task in waiting)
        await conn.rollback()
        replies = await asyncio.gather(*waiting)
    assert len({r.turn_id for r in replies}) == callers


async def _held_up(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Whether somebody waits for a lock of this connection."""
    cursor = await conn.execute(
        "SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    )
    return await cursor.fetchone() is not None


async def test_positions_rise_though_who_took_a_number_first_came_second(
    database: Database, tenant: Tenant
) -> None:
    advance = "SELECT memory.advance_user('rising', 'UTC')"
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(database.owner_dsn) as early,
        await connect(database.owner_dsn) as late,
    ):
        for conn in (early, late):
            await conn.execute(
                "SELECT set_config('nianlun.tenant_id', %s, false)", (tenant.tenant_id,)
            )
            await conn.commit()
        first = await (await early.execute(advance)).fetchone()
        await early.commit()
        await early.execute("SELECT 1 FROM memory.users WHERE user_id = 'rising' FOR UPDATE")
        waiting = asyncio.create_task(late.execute(advance))
        blocked = None
        async with asyncio.timeout(30):
            while not blocked or not blocked[0]:
                await asyncio.sleep(0.02)
                cursor = await early.execute(
                    "SELECT pg_blocking_pids(%s)", (late.info.backend_pid,)
                )
                blocked = await cursor.fetchone()
        second = await (await early.execute(advance)).fetchone()
        await early.commit()
        third = await (await waiting).fetchone()
    assert first is not None
    assert second is not None
    assert third is not None
    assert first[0] < second[0] < third[0]
