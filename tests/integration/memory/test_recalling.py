"""Questions about earlier talk in both languages, contradictions, and what a model makes up."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.common import status
from services.local.environment import free_ports
from services.memory.embedding import GrpcEmbedder
from tests.integration.memory.calls import Memory, rid
from tests.integration.memory.test_writing import answer, fact
from tests.support import fake_llm as fake
from tests.support.db import Databases
from tests.support.fake_llm import FakeLlm
from tests.support.stack import Stack

NOW = datetime.now(UTC)
TALKS = {
    "Pulumi": (
        ("I'm comparing Terraform and Pulumi for our infra, which one is better?",
         "Pulumi lets you use Python."),
        ("Let's go with Pulumi then.", "Great, Pulumi it is."),
    ),
    "Logseq": (
        ("我想选个笔记软件，Logseq 和 Obsidian 哪个好？", "Logseq 开源。"),
        ("那就选 Logseq 吧", "好，定 Logseq。"),
    ),
}  # fmt: skip
QUESTIONS = {
    "Pulumi": (
        "What was that tool called last time?", "Which infra tool did we decide on?",
        "what did we pick for infrastructure again?", "Remind me what we chose last time",
        "What's the name of the thing we settled on?", "上次我们定的那个基础设施工具叫什么？",
    ),
    "Logseq": (
        "上次选的那个笔记软件叫什么来着？", "之前说的那个软件是哪个", "我们最后定了哪个？",
        "上回聊的笔记工具叫啥", "那个软件名字我忘了，提醒一下",
        "What was that note app we picked last time?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wanted", ["Pulumi", "Logseq"])
async def test_e08_however_it_is_asked_for(memory: Memory, wanted: str) -> None:
    for said in TALKS[wanted]:
        await memory.say("u", *said)
    await memory.end("u")
    await memory.settled()
    missed = [q for q in QUESTIONS[wanted] if wanted not in (await memory.recalled("u", q))]
    assert not missed


@pytest.mark.parametrize(
    ("told", "current"),
    [
        ([("I live in Oslo", 300), ("I moved to Bergen", 200), ("I moved back to Oslo", 5)],
         [("city", "Oslo")]),
        ([("我在网易工作", 300), ("我跳槽到小米了", 100), ("我又回网易上班了", 2)],
         [("employer", "网易")]),
        ([("I love durian", 20), ("I don't like durian anymore", 10), ("I love durian", 1)],
         [("likes", "durian")]),
        ([("以后回答请详细一点", 3), ("以后回答请简短一点", 1)], [("answer_length", "简短")]),
        ([("I hate running", 9), ("I love running", 1)], [("likes", "running")]),
        ([("我讨厌香菜", 9), ("我现在喜欢香菜了", 1)], [("likes", "香菜")]),
        ([("I use Vim", 9), ("I no longer use Vim", 2)], []),
        ([("My name is Kim", 9), ("Call me KK", 2)], [("call_me", "KK"), ("name", "Kim")]),
        ([("I'm a nurse", 90), ("I became a teacher", 9)], [("occupation", "teacher")]),
        ([("我是老师", 90), ("我转行做程序员了", 9)], [("occupation", "程序员")]),
    ],
)  # fmt: skip
async def test_t01_t02_the_last_word_counts(
    memory: Memory, told: list[tuple[str, int]], current: list[tuple[str, str]]
) -> None:
    for text, days in told:
        await memory.say("u", text, at=NOW - timedelta(days=days))
        await memory.settled()
    assert sorted((f.attribute, f.value) for f in await memory.facts("u")) == current


GOOD = answer(fact("playing the cello"))


@pytest.mark.parametrize(
    "text",
    [
        "<think>{maybe} facts [1]</think>" + GOOD,
        '```json\n{"x":1}\n```\n```json\n' + GOOD + "\n```",
        "\ufeff" + GOOD,
        GOOD.replace("}]", "},]"),
        GOOD.replace('{"facts"', '{ // facts\n"facts"'),
        json.dumps([fact("playing the cello")]),
        "Here you are: " + json.dumps([fact("playing the cello")]),
        '{"result": ' + GOOD + "}",
        GOOD[: GOOD.index('"statement"')],
        GOOD.replace('"statement": ""', '"statement": null'),
        GOOD.replace('"turn": 1', '"turn": "1"'),
    ],
)
async def test_w01_every_shape_of_json_is_read(smart: Memory, fake_llm: FakeLlm, text: str) -> None:
    fake_llm.on(None, fake.text(text))
    said = await smart.say("u", "I love playing the cello")
    job = await smart.ended(said.job_id)
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert [f.value for f in await smart.facts("u")] == ["playing the cello"]


@pytest.mark.parametrize(
    ("said", "made_up"),
    [
        ("She thinks I live in Rome", fact("I live in Rome", "city", "Rome")),
        ("Translate: I live in Rome", fact("I live in Rome", "city", "Rome")),
        ('He wrote "I live in Rome" there', fact("I live in Rome", "city", "Rome")),
        ("In my novel I live in Rome.", fact("I live in Rome", "city", "Rome")),
        ("I live in Rome. Just kidding!", fact("I live in Rome", "city", "Rome")),
        ("他觉得我住在罗马", fact("我住在罗马", "city", "罗马")),
        ("你猜我是不是住在罗马", fact("我是不是住在罗马", "city", "罗马")),
        ("I am not sure I live in Rome", fact("I live in Rome", "city", "Rome")),
        ("I like tea", fact("I like tea", "likes", "skydiving")),
        ("我喜欢喝茶", fact("我喜欢喝茶", "likes", "跳伞")),
    ],
)
async def test_m07_what_was_not_claimed_is_no_fact(
    smart: Memory, fake_llm: FakeLlm, said: str, made_up: dict[str, object]
) -> None:
    fake_llm.on(None, fake.text(answer(made_up)))
    await smart.say("u", said)
    await smart.settled()
    assert not await smart.facts("u")


async def test_w06_the_embedder_is_away_and_comes_back(databases: Databases) -> None:
    (port,) = free_ports(1)
    database = databases.new()
    address = f"127.0.0.1:{port}"
    memory_only = Stack(database, services=("memory",), targets={"embedder": address})
    embedder_only = Stack(
        database, services=("embedder",), overrides={"embedder": {"listen": address}}
    )
    await memory_only.start()
    try:
        memory = Memory(memory_only.client().memory)
        await memory.say("u", "那就选 giscus 做评论系统", "好，定 giscus。")
        await memory.end("u")
        asked = "评论系统选了什么"
        found = await memory.load("u", asked)
        assert any("giscus" in hit.episode.note for hit in found.episodes)
        assert found.degradations
        (note,) = await memory.episodes("u")
        assert note.vector_state == pb.VECTOR_STATE_PENDING
        await embedder_only.start()
        await memory.settled(60)
        (note,) = await memory.episodes("u")
        assert note.vector_state == pb.VECTOR_STATE_READY
        again = await memory.load("u", asked)
        assert any("giscus" in hit.episode.note for hit in again.episodes)
        assert not again.degradations
    finally:
        await embedder_only.stop()
        await memory_only.stop()
    assert isinstance(note, pb.Episode)


async def test_what_has_no_vector_yet_shows_in_every_search(databases: Databases) -> None:
    database = databases.new()
    stack = Stack(database, services=("embedder", "memory"), workers=False)
    await stack.start()
    tenant = database.tenant()
    memory = Memory(stack.client(tenant).memory)
    working = Stack(
        database, services=(), targets={"embedder": stack.target("embedder")}, workers=True
    )

    async def lacking() -> list[tuple[int, str]]:
        """(kind, layer) of what each search lacks."""
        stub = memory.stub
        query, layers = "评论系统", pb.Layers(readings=True)
        replies = [
            await stub.SearchTurns(pb.SearchTurnsRequest(user_id="u", query=query)),
            await stub.FindSimilarReadings(pb.FindSimilarReadingsRequest(user_id="u", text=query)),
            await memory.load("u", query, layers=layers),
            await memory.recall("u", query),
        ]
        return [(d.kind, d.metadata["layer"]) for reply in replies for d in reply.degradations]

    try:
        await memory.say("u", "那就选 giscus 做评论系统", "好，定 giscus。")
        await memory.stub.RecordReading(
            pb.RecordReadingRequest(
                request_id=rid(), user_id="u", document_id="d", title="评论系统", summary="giscus"
            )
        )
        pending = common_pb2.DEGRADATION_KIND_VECTORS_PENDING
        # There is no note yet.
        assert await lacking() == [(pending, "turns"), (pending, "readings"), (pending, "readings")]
        await working.start()
        await memory.settled(60)
        assert await lacking() == []
    finally:
        await working.stop()
        await stack.stop()


async def test_w06_an_item_that_failed_while_the_model_was_busy_is_tried_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed, away = GrpcEmbedder._embed, ["heron"]

    async def busy(self: GrpcEmbedder, texts: Any, kind: Any) -> embedder_pb2.EmbedResponse:
        reply = await embed(self, texts, kind)
        for item, text in zip(reply.items, texts, strict=True):
            if kind == embedder_pb2.INPUT_TYPE_DOCUMENT and away and away[0] in text:
                item.Clear()
                item.error.CopyFrom(status.item_error("OVERLOADED", "busy"))
        return reply

    monkeypatch.setattr(GrpcEmbedder, "_embed", busy)
    await memory.say("u", "I photographed a heron in the reeds today.", "Nice.")
    async with asyncio.timeout(60):
        while True:
            jobs = (await memory.stub.ListJobs(pb.ListJobsRequest(kind="embed"))).jobs
            if any(j.state == common_pb2.JOB_STATE_RETRYING for j in jobs):
                break
            assert not any(j.state == common_pb2.JOB_STATE_SUCCEEDED for j in jobs)
            await asyncio.sleep(0.05)
    assert jobs[0].error.reason == common_pb2.ERROR_REASON_OVERLOADED
    away.clear()
    ended = [j async for j in memory.stub.WatchJob(pb.WatchJobRequest(job_id=jobs[0].job_id))]
    assert ended[-1].job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert int(ended[-1].job.result["embedded"]) >= 1
    assert ended[-1].job.result["failed"] == "0"
