"""More than one answer looks at: the question decides what is left out, and it is said what was."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest_asyncio

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.local.environment import free_ports
from tests.integration.memory.calls import Memory, imported
from tests.support.db import Databases, Tenant
from tests.support.records import line
from tests.support.stack import Stack

FRESH, INDEXED = 6, 100
HEADER = json.dumps({"type": "header", "format": "nianlun.memory.export", "version": 1})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quiet(databases: Databases) -> AsyncIterator[Stack]:
    """A memory service whose worker never comes: nothing is digested, nothing embedded."""
    (port,) = free_ports(1)
    limits = {"fresh_turns": FRESH, "index_items": INDEXED, "embed_timeout_s": 0.2}
    running = Stack(
        databases.new(), services=("memory",), workers=False,
        targets={"embedder": f"127.0.0.1:{port}"}, overrides={"memory": limits},
    )  # fmt: skip
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def tenant_of(quiet: Stack) -> Tenant:
    return quiet.database.tenant()


@pytest_asyncio.fixture(loop_scope="session")
async def idle(quiet: Stack, tenant_of: Tenant) -> Memory:
    """A new tenant of that service."""
    return Memory(quiet.client(tenant_of).memory)


def cut(reply: pb.LoadMemoryResponse) -> dict[str, int]:
    """How many items each layer left out as beyond what is looked at. Said twice: as omissions, and
    as degradations."""
    left = {
        pb.Layer.Name(o.layer).removeprefix("LAYER_").lower(): o.count
        for o in reply.omissions if o.reason == pb.OMISSION_REASON_TOP_K
    }  # fmt: skip
    assert {
        d.metadata["layer"] for d in reply.degradations
        if d.kind == common_pb2.DEGRADATION_KIND_TRUNCATED
    } == set(left)  # fmt: skip
    return left


def said(reply: pb.LoadMemoryResponse) -> list[str]:
    """The words of the fresh turns."""
    return [t.messages[0].text for t in reply.fresh_turns]


async def test_m01_the_first_of_many_undigested_turns_is_found(idle: Memory) -> None:
    await idle.say("u", "The code word of my locker is zanzibar", session="s0")
    for number in range(FRESH + 3):
        await idle.say("u", f"The weather of day {number} was fine", session=f"s{number % 3}")
    found = await idle.load("u", "What is the code word of my locker?", session="new")
    assert "zanzibar" in found.rendered
    assert len(found.fresh_turns) == FRESH
    assert said(found)[0] == "The code word of my locker is zanzibar"
    # Behind what was asked for, the newest.
    newest = [f"The weather of day {n} was fine" for n in range(FRESH + 2, 3, -1)]
    assert said(found)[1:] == newest
    assert cut(found) == {"fresh_turns": 4}
    unasked = await idle.load("u", session="new")
    assert said(unasked) == [f"The weather of day {n} was fine" for n in range(FRESH + 2, 2, -1)]
    (left,) = [o for o in unasked.omissions if o.reason == pb.OMISSION_REASON_TOP_K]
    assert len(left.item_ids) == left.count == 4


async def test_m01_as_many_as_are_looked_at_are_whole(idle: Memory) -> None:
    for number in range(FRESH):
        await idle.say("u", f"The weather of day {number} was fine")
    assert cut(await idle.load("u", "weather", session="new")) == {}
    assert cut(await idle.load("u", session="new")) == {}


async def test_turns_that_were_given_up_leave_room_for_those_that_wait(
    idle: Memory, quiet: Stack, tenant_of: Tenant
) -> None:
    for number in range(3):
        await idle.say("u", f"waits {number}")
    for number in range(FRESH):
        await idle.say("u", f"given up {number}")
    with psycopg.connect(quiet.database.owner_dsn, autocommit=True) as conn:
        conn.execute("SELECT set_config('nianlun.tenant_id', %s, false)", (tenant_of.tenant_id,))
        conn.execute(
            "UPDATE memory.turns SET digest_state = 'quarantined' WHERE tenant_id = %s"
            " AND messages ->> 0 LIKE '%%given up%%'",
            (tenant_of.tenant_id,),
        )
    found = await idle.load("u", session="new")
    assert sorted(said(found)) == [
        "given up 3", "given up 4", "given up 5", "waits 0", "waits 1", "waits 2",
    ]  # fmt: skip
    assert cut(found) == {"fresh_turns": 3}
    assert "given up 0" in said(await idle.load("u", "given up 0", session="new"))


async def test_a_fact_is_found_among_more_than_are_looked_at(idle: Memory) -> None:
    facts = [
        line(
            "facts", fact_id=str(uuid.uuid4()), attribute=f"hobby_{n:03}", value=f"hobby {n}",
            statement=f"The user has hobby {n}",
        )
        for n in range(410)
    ]  # fmt: skip
    last = line(
        "facts", fact_id=str(uuid.uuid4()), attribute="zoo_animal", value="okapi",
        statement="The user's zoo animal is the okapi",
    )  # fmt: skip
    await imported(idle, "u", [HEADER, *facts, last])
    found = await idle.load("u", "Which zoo animal is mine?", session="new")
    assert found.profile[0].value == "okapi"
    assert cut(found) == {"profile": 11}


async def test_notes_and_turns_beyond_the_index_are_reported(idle: Memory) -> None:
    notes = [
        line("episodes", episode_id=str(uuid.uuid4()), note=f"The user saw comet {n}")
        for n in range(INDEXED + 3)
    ]  # fmt: skip
    turns = [
        line(
            "turns", turn_id=str(uuid.uuid4()), sequence=n + 1, digest_state="done", flags=[],
            messages=[{"role": "user", "text": f"I saw comet {n}"}],
        )
        for n in range(INDEXED + 2)
    ]  # fmt: skip
    await imported(idle, "u", [HEADER, *notes[:INDEXED], *turns[:INDEXED]])
    assert "episodes" not in {
        d.metadata["layer"] for d in (await idle.load("u", "comet 7")).degradations
        if d.kind == common_pb2.DEGRADATION_KIND_TRUNCATED
    }  # fmt: skip
    await imported(idle, "u", [*notes, *turns])
    found = await idle.load("u", "comet 7", session="new")
    assert 3 in [
        o.count for o in found.omissions
        if o.layer == pb.LAYER_EPISODES and o.reason == pb.OMISSION_REASON_TOP_K
    ]  # fmt: skip
    searched = await idle.recall("u", "comet 7")
    asked = pb.SearchTurnsRequest(user_id="u", query="comet 7")
    for reply, layer, count in (
        (found, "episodes", 3),
        (searched, "episodes", 3),
        (await idle.stub.SearchTurns(asked), "turns", 2),
    ):
        (said_so,) = [
            d for d in reply.degradations if d.kind == common_pb2.DEGRADATION_KIND_TRUNCATED
        ]
        assert said_so.metadata["layer"] == layer
        assert said_so.message.startswith(f"{count} ")
