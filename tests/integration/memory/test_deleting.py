"""What is deleted is in no summary afterwards, whoever was writing one; what is not stays."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import grpc
import psycopg
from google.protobuf.duration_pb2 import Duration

from nianlun.memory.v1 import memory_pb2 as pb
from tests.integration.memory.calls import Memory, exported, imported, rid
from tests.integration.memory.test_writing import answer, fact
from tests.support import fake_llm as fake
from tests.support.db import Database, Tenant
from tests.support.fake_llm import Call, FakeLlm
from tests.support.stack import Stack

CANARY = "xylocanary"


def _summary_of_canary(call: Call) -> bool:
    return "running summary" in call.text and CANARY in call.text


def _extraction_of_canary(call: Call) -> bool:
    return "running summary" not in call.text and CANARY in call.text


def script(fake_llm: FakeLlm, delay_s: float) -> None:
    """Notes and summaries tell of the canary exactly where they are given it."""
    notes = [{"turns": [1], "note": f"The user decided on {CANARY}."}]
    fake_llm.on(None, fake.text(answer()))
    fake_llm.on(CANARY, fake.text(answer(notes=notes)))
    fake_llm.on("running summary", fake.text("The user talks about software."))
    fake_llm.on(_summary_of_canary, fake.text(f"They chose {CANARY}.", delay_s=delay_s))


async def asked(fake_llm: FakeLlm, about: Callable[[Call], bool], calls: int = 1) -> None:
    """Wait until the model has had so many calls of the kind."""
    async with asyncio.timeout(30):
        while sum(map(about, fake_llm.chats())) < calls:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.02)


async def summary(memory: Memory, user: str, session: str = "") -> str:
    """The text of the newest version, "" where there is none."""
    try:
        found = await memory.stub.GetSummary(pb.GetSummaryRequest(user_id=user, session_id=session))
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return ""
        raise
    text: str = found.summary.text
    return text


async def start_ending(memory: Memory, user: str, session: str = "s1") -> None:
    """EndSession, without waiting for its job."""
    await memory.stub.EndSession(
        pb.EndSessionRequest(request_id=rid(), user_id=user, session_id=session)
    )


async def purge_facts(memory: Memory, user: str) -> None:
    """RetractFact with purge, of every fact."""
    for found in await memory.facts(user):
        await memory.stub.RetractFact(
            pb.RetractFactRequest(
                request_id=rid(), user_id=user, fact_id=found.fact_id, purge=True
            )
        )  # fmt: skip


async def test_d05_a_note_deleted_while_its_summary_is_written(
    smart: Memory, fake_llm: FakeLlm
) -> None:
    script(fake_llm, 0.6)
    await smart.say("u", f"I decided on {CANARY}")
    await smart.say("u", "Let us talk about Rust")
    await smart.settled()
    await start_ending(smart, "u")
    await asked(fake_llm, _summary_of_canary)
    (note,) = await smart.episodes("u")
    await smart.stub.DeleteEpisode(
        pb.DeleteEpisodeRequest(request_id=rid(), user_id="u", episode_id=note.episode_id)
    )
    await smart.settled()
    assert await summary(smart, "u", "s1") == "The user talks about software."
    assert CANARY not in await summary(smart, "u")
    assert CANARY not in (await smart.load("u", CANARY, session="s1")).rendered
    # The call that came to nothing is counted all the same.
    usage = await smart.stub.GetUsage(pb.GetUsageRequest())
    assert [e.calls for e in usage.entries if e.layer == "summary"] == [2]


async def test_d05_a_turn_deleted_while_a_later_version_is_written(
    smart: Memory, fake_llm: FakeLlm
) -> None:
    script(fake_llm, 0.6)
    said = await smart.say("u", f"I decided on {CANARY}")
    await smart.end("u")
    assert CANARY in await summary(smart, "u", "s1")
    await smart.say("u", "Let us talk about Rust")
    await smart.settled()
    await start_ending(smart, "u")
    await asked(fake_llm, _summary_of_canary, 2)
    await smart.stub.DeleteTurn(
        pb.DeleteTurnRequest(request_id=rid(), user_id="u", turn_id=said.turn_id)
    )
    await smart.settled()
    assert await summary(smart, "u", "s1") == "The user talks about software."
    assert CANARY not in await summary(smart, "u")


async def test_d03_what_was_shown_with_a_turn_is_deleted_while_it_is_digested(
    smart: Memory, fake_llm: FakeLlm
) -> None:
    # The last turn is the second or the third of those that are read together.
    notes = [{"turns": [n], "note": f"The user wants {CANARY} for comments."} for n in (2, 3)]
    fake_llm.on(None, fake.text(answer()))
    first, second = threading.Event(), threading.Event()
    fake_llm.on("Good morning", fake.text(answer(), gate=first))
    fake_llm.on(_extraction_of_canary, fake.text(answer(notes=notes), gate=second))
    # While the model reads the first turn, the next two wait.
    await smart.say("u", "Good morning, I am back")
    await asked(fake_llm, lambda call: "Good morning" in call.text)
    said = await smart.say("u", f"I decided on {CANARY}")
    await smart.say("u", "Let us use it for comments")
    first.set()
    await asked(fake_llm, _extraction_of_canary)
    assert "for comments" in fake_llm.chats()[-1].text
    await smart.stub.DeleteTurn(
        pb.DeleteTurnRequest(request_id=rid(), user_id="u", turn_id=said.turn_id)
    )
    second.set()
    await smart.settled()
    assert await smart.episodes("u") == []
    # What is left was read again without it, and is digested.
    assert "for comments" in fake_llm.chats()[-1].text
    assert CANARY not in fake_llm.chats()[-1].text
    position = await smart.stub.GetPosition(pb.GetPositionRequest(user_id="u"))
    assert position.undigested_turns == 0


async def test_d04_a_deleted_note_is_not_the_topic_of_the_next_one(memory: Memory) -> None:
    await memory.say("u", f"{CANARY} 这个评论系统好用吗？")
    await memory.settled()
    (note,) = await memory.episodes("u")
    assert CANARY in note.note
    await memory.stub.DeleteEpisode(
        pb.DeleteEpisodeRequest(request_id=rid(), user_id="u", episode_id=note.episode_id)
    )
    await memory.say("u", "那就用它做网站的评论吧")
    await memory.settled()
    (note,) = await memory.episodes("u")
    assert "评论" in note.note
    assert CANARY not in note.note


async def say_it_twice(memory: Memory, fake_llm: FakeLlm) -> None:
    """One note, told in s1 and again in s2; both sessions and the user have summaries of it."""
    script(fake_llm, 0.0)
    for session in ("s1", "s2"):
        await memory.say("u", f"I decided on {CANARY}", session=session)
        await memory.end("u", session)
        await memory.say("u", "Let us talk about Rust", session=session)
        await memory.settled()
        assert CANARY in await summary(memory, "u", session)
    assert CANARY in await summary(memory, "u")


async def test_d01_a_deleted_note_leaves_every_session_it_was_told_in(
    smart: Memory, fake_llm: FakeLlm
) -> None:
    await say_it_twice(smart, fake_llm)
    (note,) = await smart.episodes("u")
    assert {s.session_id for s in note.sources} == {"s1", "s2"}
    reply = await smart.stub.DeleteEpisode(
        pb.DeleteEpisodeRequest(request_id=rid(), user_id="u", episode_id=note.episode_id)
    )
    assert reply.receipt.removed["summaries"] == 4
    await smart.settled()
    for session in ("s1", "s2", ""):
        assert CANARY not in await summary(smart, "u", session)
    # What else was said there is summed up anew.
    assert await summary(smart, "u", "s2") == "The user talks about software."
    assert "software" in await summary(smart, "u")


async def test_d01_a_purged_fact_leaves_every_session_it_was_told_in(memory: Memory) -> None:
    for session in ("s1", "s2"):
        await memory.say("u", f"我喜欢喝{CANARY}", session=session)
        await memory.say("u", "我在学木工", session=session)
        await memory.end("u", session)
    (drink,) = await memory.facts("u", attribute="likes")
    await memory.stub.RetractFact(
        pb.RetractFactRequest(request_id=rid(), user_id="u", fact_id=drink.fact_id, purge=True)
    )
    await memory.settled()
    for session in ("s1", "s2", ""):
        told = await summary(memory, "u", session)
        assert CANARY not in told
        assert "木工" in told


async def test_d01_a_purged_fact_that_no_note_told_of(smart: Memory, fake_llm: FakeLlm) -> None:
    script(fake_llm, 0.0)
    quoted = fact(f"I love {CANARY}", value=CANARY)
    fake_llm.on(_extraction_of_canary, fake.text(answer(quoted)))
    await smart.say("u", f"I love {CANARY}")
    await smart.end("u")
    assert await smart.episodes("u") == []
    assert CANARY in await summary(smart, "u", "s1")
    await purge_facts(smart, "u")
    await smart.settled()
    assert await summary(smart, "u", "s1") == ""
    assert CANARY not in (await smart.load("u", CANARY, session="s1")).rendered


async def test_a_fact_without_sources_outlives_the_deletion_of_other_turns(memory: Memory) -> None:
    await memory.say("u", "我住在北京")
    await memory.settled()
    lines = [
        line for line in await exported(memory, "u")
        if json.loads(line)["type"] in ("header", "facts")
    ]  # fmt: skip
    await imported(memory, "v", lines)
    receipts = [
        await memory.say("v", text, session=session)
        for text, session in (("我喜欢喝茶", "s1"), ("我喜欢爬山", "s2"))
    ]
    await memory.settled()
    await memory.stub.DeleteTurn(
        pb.DeleteTurnRequest(request_id=rid(), user_id="v", turn_id=receipts[0].turn_id)
    )
    assert {f.value for f in await memory.facts("v")} == {"北京", "爬山"}
    reply = await memory.stub.EraseSession(
        pb.EraseSessionRequest(request_id=rid(), user_id="v", session_id="s2")
    )
    assert reply.receipt.removed["facts"] == 1
    assert [f.value for f in await memory.facts("v")] == ["北京"]


async def test_retention_of_a_fact_leaves_another_users_fact_of_the_same_id(
    stack: Stack, database: Database, tenant: Tenant
) -> None:
    memory = Memory(stack.client(tenant).memory)
    await memory.say("u", "我住在北京")
    await memory.settled()
    await imported(memory, "v", await exported(memory, "u"))
    await memory.say("u", "我搬到上海了")
    await memory.settled()
    with psycopg.connect(database.owner_dsn, autocommit=True) as conn:
        conn.execute("SELECT set_config('nianlun.tenant_id', %s, false)", (tenant.tenant_id,))
        conn.execute(
            "UPDATE memory.facts SET closed_at = now() - interval '90 days'"
            " WHERE tenant_id = %s AND state = 'superseded'",
            (tenant.tenant_id,),
        )
    settings = pb.Settings(retention=pb.Retention(closed_facts=Duration(seconds=30 * 86_400)))
    await memory.stub.UpdateSettings(pb.UpdateSettingsRequest(request_id=rid(), settings=settings))
    for _ in range(400):
        left = await memory.history("u", "city")
        if len(left) == 1:
            break
        await asyncio.sleep(0.05)
    assert [f.value for f in left] == ["上海"]
    (kept,) = await memory.facts("v")
    assert (kept.value, kept.source_count) == ("北京", 1)


async def moved_twice(memory: Memory) -> pb.AppendTurnResponse:
    """One place of which a single turn tells, cut in two by another; returns that turn."""
    first = await memory.say("u", "我2019年搬到了上海。", session="s1")
    await memory.settled()
    await memory.say("u", "我2021年搬到了北京。", session="s2")
    await memory.settled()
    places = [(fact.value, len(fact.sources)) for fact in await memory.history("u", "city")]
    assert places == [("上海", 1), ("北京", 1), ("上海", 1)]
    return first


async def test_both_halves_of_a_fact_go_with_the_only_turn_that_told_it(memory: Memory) -> None:
    first = await moved_twice(memory)
    await memory.stub.DeleteTurn(
        pb.DeleteTurnRequest(request_id=rid(), user_id="u", turn_id=first.turn_id)
    )
    (left,) = await memory.history("u", "city")
    assert (left.value, left.state) == ("北京", pb.FACT_STATE_ACTIVE)
    assert not left.HasField("valid_to")
    assert "上海" not in "\n".join(await exported(memory, "u"))


async def test_a_half_that_an_earlier_version_left_without_a_source_goes_too(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    await moved_twice(memory)
    with database.connect() as conn:
        halves = conn.execute(
            "SELECT fact_id FROM memory.facts WHERE tenant_id = %s AND value = '上海'"
            " ORDER BY valid_from",
            (tenant.tenant_id,),
        ).fetchall()
        conn.execute(
            "DELETE FROM memory.fact_sources WHERE tenant_id = %s AND fact_id = %s",
            (tenant.tenant_id, halves[0]["fact_id"]),
        )
        # What was brought in without its sources rests on no turn: not on this one either.
        conn.execute(
            "INSERT INTO memory.facts SELECT (jsonb_populate_record(f, jsonb_build_object("
            " 'fact_id', gen_random_uuid(), 'value', '广州', 'value_key', '广州'))).*"
            " FROM memory.facts AS f WHERE tenant_id = %s AND fact_id = %s",
            (tenant.tenant_id, halves[0]["fact_id"]),
        )
    await memory.stub.EraseSession(
        pb.EraseSessionRequest(request_id=rid(), user_id="u", session_id="s1")
    )
    assert {fact.value for fact in await memory.history("u", "city")} == {"北京", "广州"}
