"""The orchestrator over the real services, without a model: intents, replays, feedback, erase."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r
from tests.support.canary import wait_for_job
from tests.support.requests import new_id
from tests.support.stack import Client

TEXTS = {
    "fusion": "# 融合\n\n默认的融合方式是校准凸组合。\n\n# 重排\n\n重排只看前三十条候选。",
    "leases": "# 租约\n\n后台任务的租约是三十秒。\n\n# 心跳\n\n工作进程每五秒续租一次。",
}
KINDS = common_pb2.DegradationKind


@pytest.fixture
async def library(client: Client) -> str:
    await client.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="lib")
    )
    job = (
        await client.retriever.UpsertDocuments(
            r.UpsertDocumentsRequest(
                request_id=new_id(),
                collection_id="lib",
                documents=[
                    r.DocumentInput(
                        document_id=name, text=text, content_type=r.CONTENT_TYPE_MARKDOWN
                    )
                    for name, text in TEXTS.items()
                ],
            )
        )
    ).job
    done = await wait_for_job(client.retriever, job.job_id)
    assert done.state == common_pb2.JOB_STATE_SUCCEEDED
    return "lib"


async def _chat(
    client: Client, message: str, request_id: str = "", **more: object
) -> o.ChatResponse:
    asked = o.ChatInput(message=message, user_id="u", session_id="s", **more)  # type: ignore[arg-type]
    response: o.ChatResponse = await client.orchestrator.Chat(
        o.ChatRequest(input=asked, request_id=request_id or new_id())
    )
    return response


async def test_p6_selected_text_comes_first_and_a_document_speaks_for_itself(
    client: Client, library: str
) -> None:
    scope = o.Scope(collection_id=library, document_ids=["fusion"])
    response = await _chat(client, "默认的融合方式是什么？", scope=scope, verify=True)
    assert response.intent == o.INTENT_DOCUMENT_QUESTION
    assert "校准凸组合" in response.answer.text
    assert response.answer.citations[0].evidence.document_id == "fusion"
    assert response.answer.support
    assert all(one.supported for one in response.answer.support)
    selected = await _chat(client, "这句话说了什么？", scope=scope, selected_text="天空是蓝色的。")
    assert selected.answer.evidence[0].source == o.EVIDENCE_SOURCE_SELECTION
    missed = await _chat(client, "zzqqxx wwvvkk？", scope=scope)
    fell_back = KINDS.Value("DEGRADATION_KIND_DOCUMENT_TEXT_FALLBACK")
    sources = {one.source for one in missed.answer.evidence}
    if o.EVIDENCE_SOURCE_RETRIEVAL not in sources:
        assert fell_back in {one.kind for one in missed.degradations}
        assert o.EVIDENCE_SOURCE_DOCUMENT_TEXT in sources


async def _until_readings_have_vectors(client: Client) -> None:
    async with asyncio.timeout(20):
        while True:
            found = await client.memory.ListReadings(m.ListReadingsRequest(user_id="u"))
            if all(one.vector_state == m.VECTOR_STATE_READY for one in found.readings):
                return
            await asyncio.sleep(0.05)


async def test_p9_p14_a_first_reading_then_a_related_one_and_feedback(
    client: Client, library: str
) -> None:
    first = await _chat(
        client, "总结一下", scope=o.Scope(collection_id=library, document_ids=["fusion"])
    )
    assert first.intent == o.INTENT_PERSONALISED_SUMMARY
    assert not first.answer.recommendations
    assert "校准凸组合" in first.answer.text
    await _until_readings_have_vectors(client)
    second = await _chat(
        client, "总结一下", scope=o.Scope(collection_id=library, document_ids=["leases"])
    )
    read = await client.memory.ListReadings(m.ListReadingsRequest(user_id="u"))
    assert {one.document_id for one in read.readings} == {"fusion", "leases"}
    assert [one.document_id for one in second.answer.recommendations] == ["fusion"]
    reading = second.answer.recommendations[0]
    given = o.Feedback(verdict=o.FEEDBACK_VERDICT_NOT_USEFUL, reading_id=reading.reading_id)
    answer = await client.orchestrator.SubmitFeedback(
        o.SubmitFeedbackRequest(run_id=second.run_id, feedback=given, request_id=new_id())
    )
    assert answer.applied
    weights = {
        one.document_id: one.weight
        for one in (await client.memory.ListReadings(m.ListReadingsRequest(user_id="u"))).readings
    }
    assert weights["fusion"] < 1 == weights["leases"]


async def test_k11_a_plan_with_sources(client: Client, library: str) -> None:
    response = await _chat(
        client, "帮我制定融合与租约的学习计划", scope=o.Scope(collection_id=library)
    )
    assert response.intent == o.INTENT_STRUCTURED_PLAN
    plan = json.loads(response.answer.json)
    assert plan["steps"]
    assert all(step["sources"] for step in plan["steps"])
    assert response.answer.citations


async def test_a_request_id_answers_once_and_is_not_reused(client: Client) -> None:
    one = new_id()
    first = await _chat(client, "我叫林晓雨。", one)
    again = await _chat(client, "我叫林晓雨。", one)
    assert again.replayed
    assert again.run_id == first.run_id
    assert again.answer == first.answer
    turns = await client.memory.ListTurns(m.ListTurnsRequest(user_id="u"))
    assert len(turns.turns) == 1
    with pytest.raises(grpc.aio.AioRpcError) as reused:
        await _chat(client, "另一句话。", one)
    assert reused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_events_are_ordered_stored_and_end_with_completed(client: Client) -> None:
    asked = o.ChatInput(message="你好，我住在成都。", user_id="u", session_id="s", keep_prompt=True)
    request = o.StreamChatRequest(input=asked, request_id=new_id())
    events = [one.event async for one in client.orchestrator.StreamChat(request)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds.count("completed") == 1
    assert kinds[-1] == "completed"
    run = await client.orchestrator.GetRun(
        o.GetRunRequest(run_id=events[0].run_id, include_events=True, include_prompt=True)
    )
    assert run.run.state == o.RUN_STATE_COMPLETED
    assert run.run.save_state == "saved"
    assert run.events[-1].completed.response.answer == events[-1].completed.response.answer
    assert run.prompt[0].role == "system"
    listed = await client.orchestrator.ListRuns(o.ListRunsRequest(user_id="u", page_size=1))
    assert listed.runs[0].run_id == events[0].run_id


async def test_d2_erase_takes_runs_and_checkpoints_along(client: Client) -> None:
    response = await _chat(client, "我的秘密是 canary-7731。")
    receipt = await client.orchestrator.EraseUser(
        o.EraseUserRequest(user_id="u", request_id=new_id())
    )
    assert receipt.removed["runs"] == 1
    assert receipt.removed["session_messages"] == 2
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await client.orchestrator.GetRun(o.GetRunRequest(run_id=response.run_id))
    assert gone.value.code() == grpc.StatusCode.NOT_FOUND
    context = await client.orchestrator.BuildContext(
        o.BuildContextRequest(
            input=o.ChatInput(message="我的秘密是什么？", user_id="u", session_id="s")
        )
    )
    assert "7731" not in "".join(message.text for message in context.prompt)


async def test_d2_erasing_a_session_leaves_the_answers_of_others(client: Client) -> None:
    async def told(session: str) -> tuple[str, o.SubmitFeedbackRequest]:
        asked = o.ChatInput(message="你好。", user_id="u", session_id=session)
        run = await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=new_id()))
        given = o.Feedback(verdict=o.FEEDBACK_VERDICT_USEFUL, comment=f"remark-{session}")
        request = o.SubmitFeedbackRequest(run_id=run.run_id, feedback=given, request_id=new_id())
        await client.orchestrator.SubmitFeedback(request)
        return run.run_id, request

    gone, _ = await told("s1")
    kept, request = await told("s2")
    _, alone = await told("")
    with pytest.raises(grpc.aio.AioRpcError) as unnamed:
        await client.orchestrator.EraseSession(
            o.EraseSessionRequest(user_id="u", request_id=new_id())
        )
    assert unnamed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    erase = o.EraseSessionRequest(user_id="u", session_id="s1", request_id=new_id())
    receipt = await client.orchestrator.EraseSession(erase)
    assert await client.orchestrator.EraseSession(erase) == receipt
    assert receipt.memory_receipt_id
    assert (receipt.removed["runs"], receipt.removed["requests"]) == (1, 1)
    with pytest.raises(grpc.aio.AioRpcError):
        await client.orchestrator.GetRun(o.GetRunRequest(run_id=gone))
    run = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=kept))).run
    assert run.feedback[0].comment == "remark-s2"
    for one in (request, alone):
        # Its stored answer is still there: the same time, not a second verdict.
        again = await client.orchestrator.SubmitFeedback(one)
        found = (await client.orchestrator.GetRun(o.GetRunRequest(run_id=one.run_id))).run
        assert again.feedback.create_time == found.feedback[0].create_time
    # What older clients send names a session, too.
    older = o.EraseUserRequest(user_id="u", session_id="s9", request_id=new_id())
    assert (await client.orchestrator.EraseUser(older)).removed["runs"] == 0
    everything = await client.orchestrator.EraseUser(
        o.EraseUserRequest(user_id="u", request_id=new_id())
    )
    assert (everything.removed["runs"], everything.removed["requests"]) == (2, 2)


TRUNCATED = common_pb2.DEGRADATION_KIND_TRUNCATED


async def test_what_was_said_in_a_long_session_is_known_in_its_next_turn(client: Client) -> None:
    await _chat(client, "我的门禁密语是金盏花。")
    pasted = "这是一份材料。" + "年轮记录了气候。" * 700
    told = {one.kind for one in (await _chat(client, pasted)).degradations}
    assert TRUNCATED not in told
    asked = o.ChatInput(message="门禁密语是什么？", user_id="u", session_id="s")
    built = await client.orchestrator.BuildContext(o.BuildContextRequest(input=asked))
    assert TRUNCATED in {one.kind for one in built.degradations}
    system, *history, question = built.prompt
    assert [one.role for one in history] == ["user", "assistant"]
    assert history[0].text.startswith("这是一份材料。")
    # What the history does not show is known from memory, though it is of the same session.
    assert "金盏花" in system.text
    assert question.text == "门禁密语是什么？"
