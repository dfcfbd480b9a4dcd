"""A tenant's daily budget of the answering model stops calls, visibly, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from tests.support import fake_llm as llm
from tests.support.calls import decode
from tests.support.db import Databases
from tests.support.fake_llm import FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

SCHEMA = '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}'


@pytest.fixture(scope="module")
async def thrifty(databases: Databases, _llm_server: FakeLlm) -> AsyncIterator[Stack]:
    """An orchestrator alone whose tenants may use ten tokens a day."""
    stack = Stack(
        databases.new(),
        llm=_llm_server,
        workers=False,
        services=("orchestrator",),
        targets=dict.fromkeys(("embedder", "memory", "retriever"), "127.0.0.1:9"),
        overrides={"orchestrator": {"daily_tokens": 10}},
    )
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


async def _chat(client: Client, **more: object) -> o.ChatResponse:
    asked = o.ChatInput(message="年轮是什么？", use_memory=False, **more)  # type: ignore[arg-type]
    response: o.ChatResponse = await client.orchestrator.Chat(
        o.ChatRequest(input=asked, request_id=new_id())
    )
    return response


def _kinds(response: o.ChatResponse) -> set[int]:
    return {one.kind for one in response.degradations}


async def test_a_used_up_budget_stops_the_model_and_says_so(
    thrifty: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("树的一生。"))
    client, other = thrifty.client(), thrifty.client()
    first = await _chat(client)
    assert first.answer.text == "树的一生。"
    assert first.usage.prompt_tokens > 10
    second = await _chat(client)
    assert second.answer.text
    assert second.answer.finish_reason == "extractive"
    assert _kinds(second) == {common_pb2.DEGRADATION_KIND_BUDGET_STOPPED}
    assert len(fake_llm.chats()) == 1
    with pytest.raises(grpc.aio.AioRpcError) as stopped:
        await _chat(client, intent=o.INTENT_EXTRACT, response_schema=SCHEMA)
    assert stopped.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    told = decode(stopped.value)
    assert (told.reason, told.metadata) == ("BUDGET_EXHAUSTED", {"layer": "chat"})
    assert (await _chat(other)).answer.text == "树的一生。"


async def test_without_a_limit_nothing_stops(thinking_stack: Stack, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("树的一生。"))
    client = thinking_stack.client()
    for _ in range(3):
        assert not _kinds(await _chat(client))


async def test_what_a_cancelled_answer_used_is_used(thrifty: Stack, fake_llm: FakeLlm) -> None:
    # The whole answer would take minutes.
    fake_llm.on(None, llm.text("很" * 4_000, piece_delay_s=0.1))
    client = thrifty.client()
    asked = o.ChatInput(message="年轮是什么？", use_memory=False)
    request = o.StreamChatRequest(input=asked, request_id=new_id())
    stream = client.orchestrator.StreamChat(request)
    async for response in stream:
        if response.event.WhichOneof("event") == "text_delta":
            break
    stream.cancel()
    run_id = response.event.run_id
    async with asyncio.timeout(20):
        while True:
            run = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=run_id))).run
            if run.state == o.RUN_STATE_CANCELLED:
                break
            await asyncio.sleep(0.05)
    assert run.usage.estimated
    assert run.usage.prompt_tokens > 10
    assert run.usage.completion_tokens > 0
    stopped = await _chat(client)
    assert _kinds(stopped) == {common_pb2.DEGRADATION_KIND_BUDGET_STOPPED}
