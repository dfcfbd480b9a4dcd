"""The database goes away while the model answers: what is promised, and what comes of it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc
import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from services.common import context
from services.common.context import CallContext, Caller
from services.common.db import Database as Pool
from services.common.jobs import Jobs
from services.common.settings import DatabaseSettings
from services.orchestrator import runs, session_store, store
from services.orchestrator.domain import HistoryLine
from services.orchestrator.endings import FAILED, SUPERSEDED, End, Endings
from tests.support import fake_llm as llm
from tests.support.db import Database
from tests.support.fake_llm import Call, FakeLlm
from tests.support.processes import service_process
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

PENDING = common_pb2.DEGRADATION_KIND_SAVE_PENDING
NOT_STORED = common_pb2.DEGRADATION_KIND_RUN_NOT_STORED
LEASE_S = 1.5


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer waits half a second for its end to be stored, not five."""
    monkeypatch.setattr(runs, "_LAST_WORD_S", 0.5)


@pytest.fixture
async def behind(fresh_database: Database) -> AsyncIterator[Stack]:
    """Memory and its embedder, over a database of this test's own."""
    stack = Stack(fresh_database, services=("embedder", "memory"), workers=False)
    await stack.start()
    yield stack
    await stack.stop()


def _front(behind: Stack, fake_llm: FakeLlm) -> Stack:
    """An orchestrator in front of that memory."""
    return Stack(
        behind.database,
        llm=fake_llm,
        workers=False,
        services=("orchestrator",),
        targets={
            "embedder": behind.target("embedder"),
            "memory": behind.target("memory"),
            "retriever": "127.0.0.1:9",
        },
        overrides={"orchestrator": {"save_timeout_s": 0.5, "lease_s": LEASE_S}},
    )


@pytest.fixture
async def front(behind: Stack, fake_llm: FakeLlm) -> AsyncIterator[Stack]:
    stack = _front(behind, fake_llm)
    await stack.start()
    yield stack
    await stack.stop()


def _request(message: str, request_id: str) -> o.StreamChatRequest:
    asked = o.ChatInput(message=message, user_id="u", session_id="s")
    return o.StreamChatRequest(input=asked, request_id=request_id)


async def _events(client: Client, message: str, request_id: str) -> list[o.ChatEvent]:
    stream = client.orchestrator.StreamChat(_request(message, request_id), timeout=40)
    return [response.event async for response in stream]


def _kinds(events: list[o.ChatEvent]) -> tuple[list[int], list[int]]:
    """Kinds of degradation: those of the notices, and those of the answer."""
    told = [one.notice.degradation.kind for one in events if one.WhichOneof("event") == "notice"]
    return told, [one.kind for one in events[-1].completed.response.degradations]


def _leaves_when_asked(fake_llm: FakeLlm, database: Database, answer: str) -> None:
    """The database is away from the moment on in which the model is called."""

    def leave(_: Call) -> bool:
        database.leave()
        return True

    fake_llm.on(leave, llm.text(answer))


async def _shown_as_failed(client: Client, run_id: str) -> None:
    """From the end of its lease on a run that lost its process is no running one."""
    asked = o.GetRunRequest(run_id=run_id)
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110 - time passes in the database
            run := (await client.orchestrator.GetRun(asked)).run
        ).state == o.RUN_STATE_RUNNING:
            await asyncio.sleep(0.1)
    assert run.state == o.RUN_STATE_FAILED
    assert run.error.reason == common_pb2.ERROR_REASON_INTERNAL
    assert not run.HasField("end_time")
    for state, found in ((o.RUN_STATE_FAILED, [run_id]), (o.RUN_STATE_RUNNING, [])):
        listed = await client.orchestrator.ListRuns(o.ListRunsRequest(states=[state]))
        assert [one.run_id for one in listed.runs] == found


async def _saved(client: Client, run_id: str) -> o.Run:
    """The run, as soon as its turn is in memory."""
    async with asyncio.timeout(30):
        while True:
            run = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=run_id))).run
            if run.save_state == "saved":
                return run
            await asyncio.sleep(0.1)


async def test_a_run_that_cannot_be_stored_promises_nothing_and_is_stored_once_it_can(
    behind: Stack, front: Stack, fake_llm: FakeLlm
) -> None:
    database = front.database
    tenant = database.tenant()
    client, memory = front.client(tenant), behind.client(tenant).memory
    _leaves_when_asked(fake_llm, database, "好的。")
    one = new_id()
    try:
        events = await _events(client, "我养了一只叫年糕的猫。", one)
    finally:
        database.come_back()
    end = events[-1].completed
    assert end.state == o.RUN_STATE_COMPLETED
    assert end.response.answer.text == "好的。"
    for kinds in _kinds(events):
        assert NOT_STORED in kinds
        assert PENDING not in kinds, "no job goes on trying"
    (told,) = [each for each in end.response.degradations if each.kind == NOT_STORED]
    assert dict(told.metadata) == {"reason": "DATABASE_UNAVAILABLE", "save_state": "failed"}
    # The database is back: the end is stored after all, and with it the job that saves the turn.
    run = await _saved(client, events[0].run_id)
    assert run.state == o.RUN_STATE_COMPLETED
    assert [each.kind for each in run.degradations if each.kind in (PENDING, NOT_STORED)] == [
        PENDING
    ]
    turns = (await memory.ListTurns(m.ListTurnsRequest(user_id="u"))).turns
    assert [turn.messages[0].text for turn in turns] == ["我养了一只叫年糕的猫。"]
    asked = o.ChatInput(message="它叫什么？", user_id="u", session_id="s", use_memory=False)
    built = await client.orchestrator.BuildContext(o.BuildContextRequest(input=asked))
    assert "我养了一只叫年糕的猫。" in [each.text for each in built.prompt]
    # Asked again, the stored answer comes; its promise was kept.
    again = await _events(client, "我养了一只叫年糕的猫。", one)
    assert again[-1].completed.response.replayed
    assert again[-1].completed.response.answer.text == "好的。"
    assert _kinds(again) == ([PENDING], [PENDING])
    assert [each.sequence for each in again] == list(range(1, len(again) + 1))
    assert len(fake_llm.chats()) == 1


async def test_a_run_whose_process_ends_before_the_database_is_back_runs_again_when_repeated(
    behind: Stack, fake_llm: FakeLlm
) -> None:
    database = behind.database
    tenant = database.tenant()
    first, one = _front(behind, fake_llm), new_id()
    await first.start()
    _leaves_when_asked(fake_llm, database, "好的。")
    try:
        lost = await _events(first.client(tenant), "我养了一只叫年糕的猫。", one)
        await first.stop()
    finally:
        database.come_back()
    assert NOT_STORED in _kinds(lost)[1]
    fake_llm.reset()
    fake_llm.on(None, llm.text("记下了。"))
    second = _front(behind, fake_llm)
    await second.start()
    try:
        client = second.client(tenant)
        await _shown_as_failed(client, lost[0].run_id)
        again = await _events(client, "我养了一只叫年糕的猫。", one)
        assert again[-1].completed.response.answer.text == "记下了。"
        assert not again[-1].completed.response.replayed
        assert again[0].run_id == lost[0].run_id
        turns = (
            await behind.client(tenant).memory.ListTurns(m.ListTurnsRequest(user_id="u"))
        ).turns
        assert [turn.messages[1].text for turn in turns] == ["记下了。"]
    finally:
        await second.stop()


async def test_a_process_killed_in_the_middle_of_a_run_leaves_one_that_can_be_repeated(
    behind: Stack, front: Stack, fake_llm: FakeLlm
) -> None:
    database, one = front.database, new_id()
    tenant = database.tenant()
    never = threading.Event()
    fake_llm.on(None, llm.text("太晚", gate=never))
    environment = fake_llm.environment | {
        "NIANLUN_ORCHESTRATOR_LISTEN": "127.0.0.1:0",
        "NIANLUN_ORCHESTRATOR_DATABASE_DSN": database.role_dsn("orchestrator"),
        "NIANLUN_ORCHESTRATOR_MEMORY_TARGET": behind.target("memory"),
        "NIANLUN_ORCHESTRATOR_RETRIEVER_TARGET": "127.0.0.1:9",
        "NIANLUN_ORCHESTRATOR_LEASE_S": str(LEASE_S),
    }
    events: list[o.ChatEvent] = []
    async with service_process("services.orchestrator", environment) as service:
        await service.ready()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
            stream = stub.StreamChat(
                _request("我养了一只猫。", one), metadata=tenant.metadata, timeout=60
            )

            async def follow() -> None:
                async for response in stream:
                    events.append(response.event)
                    if response.event.step_started.step == "reason":
                        service.process.kill()

            with pytest.raises(grpc.aio.AioRpcError) as broken:
                await follow()
    assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "completed" not in [event.WhichOneof("event") for event in events]
    fake_llm.on(None, llm.text("记下了。"))
    client = front.client(tenant)
    await _shown_as_failed(client, events[0].run_id)
    again = await _events(client, "我养了一只猫。", one)
    assert again[-1].completed.response.answer.text == "记下了。"
    assert again[0].run_id == events[0].run_id


async def test_a_model_that_is_rate_limited_leaves_a_completed_run_that_says_so(
    front: Stack, fake_llm: FakeLlm
) -> None:
    client = front.client()
    fake_llm.on(None, llm.rate_limited(0.0))
    events = await _events(client, "我养了一只叫年糕的猫。", new_id())
    assert events[-1].completed.state == o.RUN_STATE_COMPLETED
    assert events[-1].completed.response.answer.text
    for kinds in _kinds(events):
        assert kinds == [common_pb2.DEGRADATION_KIND_RECOVERED]
    run = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=events[0].run_id))).run
    assert (run.state, run.save_state) == (o.RUN_STATE_COMPLETED, "saved")


async def test_a_reading_is_recorded_though_an_earlier_attempt_saved_the_turn(
    behind: Stack, front: Stack, fake_llm: FakeLlm
) -> None:
    tenant, one = front.database.tenant(), new_id()
    client, memory = front.client(tenant), behind.client(tenant).memory
    said = m.Message(role=m.ROLE_USER, text="总结这一段。")
    await memory.AppendTurn(
        m.AppendTurnRequest(request_id=one, user_id="u", session_id="s", messages=[said])
    )
    fake_llm.on(None, llm.text("讲年轮。[E1]"))
    asked = o.ChatInput(
        message="总结这一段。",
        user_id="u",
        session_id="s",
        intent=o.INTENT_PERSONALISED_SUMMARY,
        selected_text="年轮记录了气候。",
        scope=o.Scope(collection_id="c", document_ids=["d"]),
    )
    answered = await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=one))
    await _saved(client, answered.run_id)
    read = (await memory.ListReadings(m.ListReadingsRequest(user_id="u"))).readings
    assert [reading.document_id for reading in read] == ["d"]
    assert len((await memory.ListTurns(m.ListTurnsRequest(user_id="u"))).turns) == 1


@pytest.fixture
async def pool(fresh_database: Database) -> AsyncIterator[Pool]:
    """The orchestrator's own connections to this test's database."""
    dsn = SecretStr(fresh_database.role_dsn("orchestrator"))
    opened = Pool(DatabaseSettings(dsn=dsn), schema="orchestrator")
    await opened.open()
    yield opened
    await opened.close()


@contextmanager
def _endings(pool: Pool) -> Iterator[Endings]:
    """Endings as a call of tenant "t" meets them."""
    jobs = Jobs(pool, "orchestrator", DatabaseSettings(dsn=SecretStr("")))
    caller = Caller("t", "k", frozenset(), "")
    with context.bound(CallContext("test", "r", caller=caller)):
        yield Endings(pool, jobs, compact_after=40)


async def _begun(pool: Pool) -> End:
    """A run that has begun, and the end that it will have."""
    run_id, attempt = str(uuid.uuid4()), str(uuid.uuid4())
    async with pool.tenant() as conn:
        assert await store.insert_run(
            conn,
            run_id=run_id,
            attempt=attempt,
            request_id=run_id,
            input_hash=b"",
            user_id="u",
            session_id="s",
            lease_s=30,
        )
    ending = store.Ending(run_id, attempt, "completed", b"", None, b"", None, None)
    lines = (HistoryLine("user", "你好"), HistoryLine("assistant", "好的。"))
    return End(ending, "u", "s", lines, 3, 4)


async def _history(pool: Pool) -> list[str]:
    async with pool.tenant() as conn:
        return [line.text for line in (await session_store.load(conn, "u", "s")).lines]


async def test_an_end_is_stored_once_when_the_database_is_back_in_time(
    fresh_database: Database, pool: Pool
) -> None:
    with _endings(pool) as endings:
        end = await _begun(pool)
        fresh_database.leave()
        try:
            storing = asyncio.create_task(endings.store(end, within_s=60))
            assert await endings.store(end, within_s=0.1) == "DATABASE_UNAVAILABLE"
        finally:
            fresh_database.come_back()
        assert await storing == ""
        # That an acknowledgement gets lost looks like this: the end is there already.
        assert await endings.store(end, within_s=60) == ""
        await endings.close(60)
        assert await _history(pool) == ["你好", "好的。"]


async def test_an_end_that_another_attempt_or_an_erasure_overtook_is_not_stored(
    pool: Pool,
) -> None:
    with _endings(pool) as endings:
        taken, erased = await _begun(pool), await _begun(pool)
        async with pool.tenant() as conn:
            await store.take_over(conn, taken.ending.run_id, str(uuid.uuid4()), 30)
        assert await endings.store(taken, within_s=60) == SUPERSEDED
        async with pool.tenant() as conn:
            await store.erase(conn, "u", "")
        assert await endings.store(erased, within_s=60) == SUPERSEDED
        assert await _history(pool) == []


def _only_read(database: Database, on: bool) -> None:
    """Whether sessions that begin now may only read, as those of a standby."""
    statement = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(
        sql.Identifier(database.name), sql.Literal(on)
    )
    with psycopg.connect(database.server.admin_dsn, autocommit=True) as conn:
        conn.execute(statement)


async def test_an_end_waits_while_the_database_only_reads(
    fresh_database: Database, pool: Pool
) -> None:
    with _endings(pool) as endings:
        end = await _begun(pool)
        fresh_database.leave()
        _only_read(fresh_database, True)
        fresh_database.come_back()
        try:
            assert await endings.store(end, within_s=0.5) == "DATABASE_UNAVAILABLE"
        finally:
            _only_read(fresh_database, False)
        # The sessions there are go on reading only: others have to take their place.
        await endings.close(60)
        assert await _history(pool) == ["你好", "好的。"]


async def test_an_end_that_can_never_be_stored_is_given_up_and_said_so(
    pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    with _endings(pool) as endings:
        end = replace(await _begun(pool), lines=(HistoryLine("user", "\0"),))
        assert await endings.store(end, within_s=60) == FAILED
        await endings.close(60)
        assert f"end-{end.ending.run_id}" in capsys.readouterr().out
        assert await _history(pool) == []


async def test_an_old_run_is_purged_unless_a_job_is_going_to_save_it(pool: Pool) -> None:
    with _endings(pool) as endings:
        end = await _begun(pool)
        waiting = replace(end, ending=replace(end.ending, pending=b"{}"))
        assert await endings.store(waiting, within_s=60) == ""
        async with pool.tenant() as conn:
            await conn.execute("UPDATE orchestrator.runs SET create_time = now() - interval '31 d'")
            assert await store.purge_payloads(conn, 32) == 0
            assert await store.purge_payloads(conn, 30) == 0
            await conn.execute("UPDATE orchestrator.jobs SET state = 'failed'")
            assert await store.purge_payloads(conn, 32) == 0
            assert await store.purge_payloads(conn, 30) == 1


async def _purge_jobs(pool: Pool) -> list[str]:
    async with pool.tenant() as conn:
        cursor = await conn.execute(
            "SELECT state FROM orchestrator.jobs WHERE kind = 'purge_runs' ORDER BY create_time"
        )
        return [row["state"] for row in await cursor.fetchall()]


async def test_every_end_sees_to_it_that_a_purge_will_come(pool: Pool) -> None:
    with _endings(pool) as endings:
        first, second, failed = [await _begun(pool) for _ in range(3)]
        failed = replace(failed, ending=replace(failed.ending, state="failed"))
        assert await endings.store(failed, within_s=60) == ""
        assert await _purge_jobs(pool) == ["queued"]
        for end in (first, second):
            assert await endings.store(end, within_s=60) == ""
        assert await _purge_jobs(pool) == ["queued"]
