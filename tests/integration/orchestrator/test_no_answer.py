"""A run without an answer says why: whole and streamed alike, with what the reason promises."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from tests.support import fake_llm as llm
from tests.support.calls import Outcome, decode
from tests.support.db import Databases
from tests.support.fake_llm import FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

NOWHERE = dict.fromkeys(("embedder", "memory", "retriever"), "127.0.0.1:9")
# Rules find no number, so that only a model could fill it.
SCHEMA = '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}'
ASKED = o.ChatInput(
    message="几个？", use_memory=False, intent=o.INTENT_EXTRACT, response_schema=SCHEMA
)


@pytest.fixture(scope="module")
async def modelless(databases: Databases) -> AsyncIterator[Stack]:
    """An orchestrator without a language model, and without anybody behind it."""
    stack = Stack(databases.new(), workers=False, services=("orchestrator",), targets=NOWHERE)
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


async def _failure(client: Client) -> Outcome:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.orchestrator.Chat(o.ChatRequest(input=ASKED, request_id=new_id()))
    return decode(failed.value)


async def _streamed(client: Client) -> common_pb2.ItemError:
    request = o.StreamChatRequest(input=ASKED, request_id=new_id())
    events = [message.event async for message in client.orchestrator.StreamChat(request)]
    assert events[-1].completed.state == o.RUN_STATE_FAILED
    run_id = events[-1].run_id
    stored = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=run_id))).run
    assert stored.error == events[-1].completed.error
    return events[-1].completed.error


async def test_json_that_needs_a_model_where_none_is_configured_is_refused_for_good(
    modelless: Stack,
) -> None:
    client = modelless.client()
    told = await _failure(client)
    assert (told.code, told.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "FAILED_PRECONDITION",
    )
    assert told.metadata == {"state": "no_llm"}
    assert told.retry_after_s is None
    runs = (await client.orchestrator.ListRuns(o.ListRunsRequest())).runs
    assert [run.state for run in runs] == [o.RUN_STATE_FAILED]  # No client has tried it again.
    streamed = await _streamed(client)
    assert streamed.reason == common_pb2.ERROR_REASON_FAILED_PRECONDITION
    assert dict(streamed.metadata) == {"state": "no_llm"}
    assert not streamed.HasField("retry_after")


async def test_a_provider_that_is_away_is_named_and_can_be_asked_later(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.failure(503))
    client = thinking_stack.client()
    told = await _failure(client)
    assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE")
    assert told.metadata == {"model": fake_llm.model}
    assert told.retry_after_s == 1.0
    streamed = await _streamed(client)
    assert streamed.reason == common_pb2.ERROR_REASON_MODEL_UNAVAILABLE
    assert dict(streamed.metadata) == {"model": fake_llm.model}
    assert streamed.retry_after.seconds == 1


async def test_a_model_that_gives_no_such_json_has_failed(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("三个"))
    told = await _failure(thinking_stack.client())
    assert (told.code, told.reason) == (grpc.StatusCode.INTERNAL, "MODEL_FAILED")
    assert told.metadata == {"model": fake_llm.model}
    assert told.retry_after_s is None
