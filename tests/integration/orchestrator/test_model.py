"""Whole runs with a scripted model: every intent, hangs in the tool loop, a second provider."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r
from services.orchestrator.intents import INTENTS
from services.orchestrator.settings import FallbackLlmSettings
from tests.support import fake_llm as llm
from tests.support.canary import wait_for_job
from tests.support.db import Databases
from tests.support.fake_llm import Call, FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

TEXT = "# 融合\n\n默认的融合方式是校准凸组合。\n\n# 作者\n\n本文作者是林晓雨，写于 2026 年。"
PLAN = {
    "title": "学融合",
    "goal": "会用",
    "steps": [{"order": 1, "title": "读", "goal": "懂", "sources": ["E1"]}],
}
FIELDS = {"fields": [{"name": "作者", "value": "林晓雨", "evidence": ["E1"]}]}
LONG = "年轮是树木每年形成的同心圆，宽窄反映当年的气候。" * 8

# (message, reply of the model) by intent: an intent without a line fails the test below.
CASES: dict[o.Intent.ValueType, tuple[str, llm.Reply]] = {
    o.INTENT_CHAT: ("聊聊默认的融合方式吧。", llm.text("好的！")),
    o.INTENT_DOCUMENT_QUESTION: ("默认的融合方式是什么？", llm.text("校准凸组合。[E1]")),
    o.INTENT_PERSONALISED_SUMMARY: ("总结一下。", llm.text("讲融合方式。[E1]")),
    o.INTENT_STRUCTURED_PLAN: ("给我一个学习计划。", llm.as_json(PLAN)),
    o.INTENT_EXTRACT: ("提取作者。", llm.as_json(FIELDS)),
}


@pytest.fixture
async def library(thinking_stack: Stack) -> tuple[Client, str]:
    client = thinking_stack.client()
    await client.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="lib")
    )
    document = r.DocumentInput(
        document_id="fusion", text=TEXT, content_type=r.CONTENT_TYPE_MARKDOWN
    )
    asked = r.UpsertDocumentsRequest(request_id=new_id(), collection_id="lib", documents=[document])
    job = (await client.retriever.UpsertDocuments(asked)).job
    assert (await wait_for_job(client.retriever, job.job_id)).state == (
        common_pb2.JOB_STATE_SUCCEEDED
    )
    return client, "lib"


async def _events(client: Client, within_s: float = 30.0, **fields: Any) -> list[o.ChatEvent]:
    request = o.StreamChatRequest(input=o.ChatInput(**fields), request_id=new_id())
    stream = client.orchestrator.StreamChat(request, timeout=within_s)
    events = [message.event async for message in stream]
    assert [one.WhichOneof("event") for one in events].count("completed") == 1
    return events


def _kinds(completed: o.Completed) -> set[str]:
    return {
        common_pb2.DegradationKind.Name(one.kind).removeprefix("DEGRADATION_KIND_")
        for one in completed.response.degradations
    }


def test_every_intent_is_run_here() -> None:
    assert set(CASES) == set(INTENTS)


@pytest.mark.parametrize("intent", sorted(CASES))
async def test_p13_every_intent_runs_whole(
    library: tuple[Client, str], fake_llm: FakeLlm, intent: o.Intent.ValueType
) -> None:
    client, collection = library
    message, reply = CASES[intent]
    fake_llm.on(None, reply)
    scope = o.Scope(collection_id=collection, document_ids=["fusion"])
    events = await _events(
        client, message=message, user_id="u", session_id="s", intent=intent, scope=scope
    )
    completed = events[-1].completed
    assert completed.state == o.RUN_STATE_COMPLETED
    assert completed.response.intent == intent
    started = [one.step_started.label for one in events if one.HasField("step_started")]
    assert all(started)
    assert [one.step for one in completed.response.steps][-1] == "save_memory"
    answer = completed.response.answer
    streamed = "".join(one.text_delta.text for one in events if one.HasField("text_delta"))
    assert streamed == answer.text
    if INTENTS[intent].structured:
        assert json.loads(answer.json) == json.loads("".join(reply.pieces))
    if intent != o.INTENT_CHAT:
        cited = {one.evidence_id: one.evidence.document_id for one in answer.citations}
        assert cited == {"E1": "fusion"}
    assert _kinds(completed) <= {"RERANK_SKIPPED"}


async def test_what_memory_keeps_of_an_answer_has_no_marks(
    library: tuple[Client, str], fake_llm: FakeLlm
) -> None:
    client, collection = library
    fake_llm.on(None, llm.text("讲融合方式[E1]。写于 2026 年 [E1]。"))
    events = await _events(
        client,
        message="总结一下。",
        user_id="marks",
        session_id="s",
        scope=o.Scope(collection_id=collection, document_ids=["fusion"]),
    )
    assert "[E1]" in events[-1].completed.response.answer.text
    turns = await client.memory.ListTurns(m.ListTurnsRequest(user_id="marks"))
    plain = "讲融合方式。写于 2026 年。"
    assert turns.turns[0].messages[1].text == plain
    read = await client.memory.ListReadings(m.ListReadingsRequest(user_id="marks"))
    assert [one.summary for one in read.readings] == [plain]


async def test_p15_a_sentence_that_nothing_supports_is_marked(
    library: tuple[Client, str], fake_llm: FakeLlm
) -> None:
    client, collection = library
    fake_llm.on(None, llm.text("默认的融合方式是校准凸组合。[E1] 月球由奶酪构成，重达五吨。"))
    events = await _events(
        client,
        message="默认的融合方式是什么？",
        verify=True,
        use_memory=False,
        scope=o.Scope(collection_id=collection),
    )
    answer = events[-1].completed.response.answer
    told = [(answer.text[one.start : one.end].strip(), one.supported) for one in answer.support]
    assert [supported for _, supported in told] == [True, False]
    assert told[1][0].startswith("月球由奶酪构成")
    (verified,) = [
        one.step_finished
        for one in events
        if one.HasField("step_finished") and one.step_finished.step == "verify"
    ]
    assert dict(verified.counts) == {"sentences": "2", "unsupported": "1"}


async def test_what_a_tool_found_and_did_not_show_cannot_be_cited(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    client = thinking_stack.client()
    await client.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="long")
    )
    text = "\n\n".join(
        f"# {what} {n}\n\n" + f"{what}的第 {n} 条说明，细节各不相同。" * 40
        for what in ("融合", "租约")
        for n in range(10)
    )
    document = r.DocumentInput(document_id="d", text=text, content_type=r.CONTENT_TYPE_MARKDOWN)
    asked = r.UpsertDocumentsRequest(
        request_id=new_id(), collection_id="long", documents=[document]
    )
    job = (await client.retriever.UpsertDocuments(asked)).job
    assert (await wait_for_job(client.retriever, job.job_id)).state == (
        common_pb2.JOB_STATE_SUCCEEDED
    )
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "租约的说明"}))
    fake_llm.on(_after_tools, llm.text("见资料。[E1][E99]"))
    events = await _events(
        client,
        message="融合的说明？",
        use_memory=False,
        top_k=20,
        scope=o.Scope(collection_id="long"),
    )
    response = events[-1].completed.response
    found = fake_llm.chats()[-1].of_role("tool")
    assert found.count("<source ") == found.count("</source>") > 0
    shown = re.findall(r'<source id="(E\d+)"', fake_llm.chats()[-1].of_role("system") + found)
    shown = list(dict.fromkeys(shown))
    assert [one.evidence_id for one in response.answer.evidence] == shown
    for one in response.answer.evidence:
        assert one.text in fake_llm.chats()[-1].text
    assert len(shown) < 99
    assert [one.evidence_id for one in response.answer.citations] == ["E1"]
    cut = [one for one in response.degradations if one.metadata.get("tool")]
    assert [(one.kind, one.metadata["tool"]) for one in cut] == [
        (common_pb2.DEGRADATION_KIND_TRUNCATED, "search_knowledge")
    ]


def _after_tools(call: Call) -> bool:
    return any(one["role"] == "tool" for one in call.json["messages"])


def _synthesis(call: Call) -> bool:
    return "不要再调用工具" in call.text


@pytest.mark.parametrize("synthesis_hangs", [False, True])
async def test_a4_a_hang_in_the_tool_loop_is_answered_from_what_was_found(
    library: tuple[Client, str], fake_llm: FakeLlm, synthesis_hangs: bool
) -> None:
    client, collection = library
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "融合方式"}))
    fake_llm.on(_after_tools, llm.text("太晚", delay_s=60))
    late = 60.0 if synthesis_hangs else 0.0
    fake_llm.on(_synthesis, llm.text("是校准凸组合。[E1]", delay_s=late))
    events = await _events(
        client,
        within_s=5.0,
        message="默认的融合方式是什么？",
        user_id="a4",
        scope=o.Scope(collection_id=collection),
    )
    tools = [one.tool_call for one in events if one.HasField("tool_call")]
    assert [one.state for one in tools] == [o.TOOL_CALL_STATE_STARTED, o.TOOL_CALL_STATE_DONE]
    completed = events[-1].completed
    assert completed.state == o.RUN_STATE_COMPLETED
    assert "校准凸组合" in completed.response.answer.text
    assert completed.response.answer.citations
    assert completed.response.answer.finish_reason == "recovered"
    assert "RECOVERED" in _kinds(completed)


@pytest.mark.parametrize(("said", "kept"), [(LONG, True), ("年轮是", False)])
async def test_a4_a_hang_without_results_keeps_a_long_text_alone(
    library: tuple[Client, str], fake_llm: FakeLlm, said: str, kept: bool
) -> None:
    client, _ = library
    # The last piece never comes in time.
    fake_llm.on(None, llm.Reply(pieces=(said, "尾"), piece_delay_s=60.0))
    events = await _events(client, within_s=6.0, message="年轮是什么？", use_memory=False)
    completed = events[-1].completed
    assert completed.state == o.RUN_STATE_COMPLETED
    assert (completed.response.answer.text == said) is kept
    assert completed.response.answer.text
    assert "RECOVERED" in _kinds(completed)


async def test_tool_calls_of_one_message_run_side_by_side(
    library: tuple[Client, str], fake_llm: FakeLlm
) -> None:
    client, collection = library
    calls = (
        ("search_knowledge", '{"query": "融合方式"}'),
        ("recall_memory", '{"query": "名字"}'),
        ("open_document", '{"id": "fusion"}'),
    )
    fake_llm.on(None, llm.Reply(tool_calls=calls))
    fake_llm.on(_after_tools, llm.text("好。[E1]"))
    events = await _events(
        client, message="融合？", user_id="par", scope=o.Scope(collection_id=collection)
    )
    tools = [one.tool_call for one in events if one.HasField("tool_call")]
    states = [one.state for one in tools]
    # All have begun before the first one ends.
    assert states == [o.TOOL_CALL_STATE_STARTED] * 3 + [o.TOOL_CALL_STATE_DONE] * 3
    assert {one.tool for one in tools} == {name for name, _ in calls}
    sent = fake_llm.chats()[-1].json["messages"]
    assert [one["role"] for one in sent][-4:] == ["assistant", "tool", "tool", "tool"]


@pytest.fixture(scope="module")
async def two_providers(databases: Databases, _llm_server: FakeLlm) -> AsyncIterator[Stack]:
    """An orchestrator alone whose second provider is the same server under another model name."""
    second = FallbackLlmSettings(
        base_url=_llm_server.base_url, api_key=SecretStr(_llm_server.api_key), model="second"
    )
    stack = Stack(
        databases.new(),
        llm=_llm_server,
        workers=False,
        services=("orchestrator",),
        targets=dict.fromkeys(("embedder", "memory", "retriever"), "127.0.0.1:9"),
        overrides={"orchestrator": {"fallback_llm": second}},
    )
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


def _first(call: Call) -> bool:
    return bool(call.json["model"] == "fake-1")


@pytest.mark.parametrize("failure", [llm.failure(401), llm.text("")])
async def test_the_second_provider_answers_before_the_first_piece(
    two_providers: Stack, fake_llm: FakeLlm, failure: llm.Reply
) -> None:
    fake_llm.on(None, llm.text("来自备用。"))
    fake_llm.on(_first, failure)
    events = await _events(two_providers.client(), message="你好？", use_memory=False)
    completed = events[-1].completed
    assert completed.response.answer.text == "来自备用。"
    assert "FALLBACK_MODEL" in _kinds(completed)


async def test_the_second_provider_is_not_asked_once_a_piece_was_passed_on(
    two_providers: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("来自备用。"))
    fake_llm.on(_first, llm.cut(LONG, 40))
    events = await _events(two_providers.client(), message="你好？", use_memory=False)
    completed = events[-1].completed
    assert completed.response.answer.text == LONG[:160]
    assert _kinds(completed) == {"RECOVERED"}
    assert all(_first(call) for call in fake_llm.chats())


async def test_a_setting_that_the_model_refuses_is_told_to_its_caller_alone(
    two_providers: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(
        lambda call: call.json.get("max_tokens", 0) > 16_384,
        llm.failure(400, "max_tokens is too large: 32768"),
    )
    asked: dict[str, Any] = {"message": "你好？", "use_memory": False}
    client, other = two_providers.client(), two_providers.client()
    odd = await _events(client, generation=o.Generation(max_output_tokens=32_768), **asked)
    usual = await _events(other, generation=o.Generation(max_output_tokens=50), **asked)
    (told,) = odd[-1].completed.response.degradations
    assert told.kind == common_pb2.DEGRADATION_KIND_PARAMETER_IGNORED
    assert dict(told.metadata) == {"parameters": "max_output_tokens"}
    assert _kinds(usual[-1].completed) == set()
    assert [call.json.get("max_tokens") for call in fake_llm.chats()] == [32_768, None, 50]
