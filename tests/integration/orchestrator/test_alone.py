"""P11: the orchestrator with nobody behind it still answers, and says what was missing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from tests.support.db import Databases
from tests.support.requests import new_id
from tests.support.stack import Client, Stack


@pytest.fixture(scope="module")
async def alone(databases: Databases) -> AsyncIterator[Stack]:
    """Only the orchestrator runs; memory and retriever refuse connections."""
    dead = {"embedder": "127.0.0.1:9", "memory": "127.0.0.1:9", "retriever": "127.0.0.1:9"}
    stack = Stack(
        databases.new(),
        workers=False,
        services=("orchestrator",),
        targets=dead,
        overrides={"orchestrator": {"retriever_target": "127.0.0.1:9", "memory_timeout_s": 1.0}},
    )
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


async def _chat(client: Client, **fields: object) -> o.ChatResponse:
    request = o.ChatRequest(input=o.ChatInput(**fields), request_id=new_id())  # type: ignore[arg-type]
    response: o.ChatResponse = await client.orchestrator.Chat(request)
    return response


async def test_p11_everything_down_is_an_answer_with_reasons(alone: Stack) -> None:
    client = alone.client()
    response = await _chat(
        client,
        user_id="u",
        session_id="s",
        message="年轮是什么？",
        scope=o.Scope(collection_id="docs", document_ids=["d1"]),
    )
    kinds = {one.kind for one in response.degradations}
    assert response.answer.text
    assert kinds >= {
        common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED,
        common_pb2.DEGRADATION_KIND_RETRIEVAL_SKIPPED,
        common_pb2.DEGRADATION_KIND_NO_LLM,
        common_pb2.DEGRADATION_KIND_SAVE_PENDING,
    }
    run = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=response.run_id))).run
    assert run.save_state == "pending"
    assert [step.step for step in run.steps] == [
        "route",
        "load_memory",
        "retrieve",
        "reason",
        "verify",
        "save_memory",
    ]


@pytest.mark.parametrize("user_id", ["", "a\x00b", "x" * 300])
async def test_p11_no_user_and_a_bad_user_are_answered(alone: Stack, user_id: str) -> None:
    response = await _chat(alone.client(), user_id=user_id, message="你好")
    assert response.answer.text
    skipped = [
        one
        for one in response.degradations
        if one.kind == common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED
    ]
    assert skipped
    assert skipped[0].message


async def test_users_with_unusable_ids_share_no_history(alone: Stack) -> None:
    client = alone.client()
    said = "我的暗号是金盏花。"
    await _chat(client, user_id="a" * 300, session_id="default", message=said)
    own = [o.HistoryMessage(role=o.ROLE_USER, text="我在问天气。")]
    for user_id in ("b" * 300, "b\x1fc"):
        asked = o.ChatInput(
            user_id=user_id, session_id="default", message="我说过什么？", history=own
        )
        built = await client.orchestrator.BuildContext(o.BuildContextRequest(input=asked))
        assert [m.text for m in built.prompt[1:]] == ["我在问天气。", "我说过什么？"]
        asked.keep_prompt = True
        answered = await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=new_id()))
        run = await client.orchestrator.GetRun(
            o.GetRunRequest(run_id=answered.run_id, include_prompt=True)
        )
        assert [m.text for m in run.prompt[1:]] == ["我在问天气。", "我说过什么？"]
        assert run.run.session_id == ""
