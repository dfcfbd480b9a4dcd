"""The story of the demo against real processes: documents, two sessions, citations, HTTP."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import openai
import pytest

from nianlun import Client, assistant_message, chat_input, document, user_message
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r
from services.local.stack import Stack

pytestmark = pytest.mark.e2e

ZH = """# 年轮的检索

## 分词

中文按词和二元组建立索引，英文按词干建立索引。型号 R6900 G5 会被拆成多种写法。

## 融合

默认的融合方式是校准凸组合，锚点按模型固定，不随查询变化。
"""
EN = """# Nianlun operations

## Draining

On SIGTERM a service reports NOT_SERVING, waits half a second and lets calls in flight finish.

## Leases

A background job is leased for thirty seconds. A worker that dies loses its lease.
"""


@pytest.fixture(scope="module")
def library(running: Stack) -> str:
    """A collection with a Chinese and an English document."""
    collection = f"docs-{uuid.uuid4().hex[:6]}"
    with Client(running.info.targets, key=running.info.key) as client:
        client.create_collection(collection)
        answer = client.upsert_documents(
            collection,
            [
                document("retrieval.md", ZH, content_type=r.CONTENT_TYPE_MARKDOWN),
                document("operations.md", EN, content_type=r.CONTENT_TYPE_MARKDOWN),
            ],
        )
        seen: list[int] = []
        client.wait_job(answer, progress=lambda job: seen.append(job.done))
        assert seen == sorted(seen)
        assert client.get_collection(collection).collection.document_count == 2
    return collection


def _stream(
    client: Client, message: str, *, user: str = "", session: str = "", collection: str = ""
) -> tuple[list[o.ChatEvent], o.ChatResponse]:
    asked = chat_input(user, session, message, collection_id=collection)
    events = list(client.stream_chat(asked))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds.count("completed") == 1
    assert kinds[-1] == "completed"
    completed = events[-1].completed
    assert completed.state == o.RUN_STATE_COMPLETED, completed
    return events, completed.response


def test_two_sessions_of_one_user(nianlun: Client) -> None:
    user = f"u-{uuid.uuid4().hex[:6]}"
    exchanges = (
        ("我叫林晓雨，是一名前端工程师。以后回答请简短一点。", "好的，林晓雨。"),
        ("博客要加评论功能，Disqus 还是 giscus？", "giscus 没有广告，数据在 GitHub。"),
        ("那就定 giscus，不用 Disqus。", "好，评论方案定为 giscus。"),
    )
    for said, answered in exchanges:
        receipt = nianlun.append_turn(user, "s1", [user_message(said), assistant_message(answered)])
    nianlun.end_session(user, "s1")
    # At once, whether the background work has run or not.
    loaded = nianlun.load_memory(user, "我叫什么？", session_id="s2", at_least=receipt.position)
    assert "林晓雨" in loaded.rendered
    for question, expected in (
        ("我叫什么名字？", "林晓雨"),
        ("上次说的那个评论方案叫什么来着？", "giscus"),
    ):
        events, response = _stream(nianlun, question, user=user, session="s2")
        assert expected in response.answer.text
        assert response.answer.memories
        started = [e.step_started.step for e in events if e.HasField("step_started")]
        finished = [e.step_finished.step for e in events if e.HasField("step_finished")]
        assert "load_memory" in started
        assert sorted(started) == sorted(finished)
        assert nianlun.get_run(response.run_id).run.state == o.RUN_STATE_COMPLETED


@pytest.mark.parametrize(
    ("question", "expected", "source"),
    [
        ("默认的融合方式是什么？", "校准凸组合", "retrieval.md"),
        ("How long is a background job leased?", "thirty seconds", "operations.md"),
        ("R6900-G5", "R6900", "retrieval.md"),
    ],
)
def test_documents_answer_with_citations(
    nianlun: Client, library: str, question: str, expected: str, source: str
) -> None:
    _, response = _stream(nianlun, question, collection=library)
    assert expected in response.answer.text
    cited = [citation.evidence for citation in response.answer.citations]
    assert source in {evidence.document_id for evidence in cited}
    for citation in response.answer.citations:
        assert citation.evidence.evidence_id == citation.evidence_id
        assert response.answer.text[citation.start : citation.end]
        assert citation.evidence.score > 0
    assert response.degradations  # no language model: it says so


def _openai(running: Stack, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{running.info.gateway}/v1", api_key=key or running.info.key, max_retries=0
    )


def test_the_gateway_speaks_openai(running: Stack) -> None:
    client = _openai(running)
    messages: Any = [{"role": "user", "content": "我叫陈川，住在成都。我叫什么名字？"}]
    whole = client.chat.completions.create(model="nianlun", messages=messages, user="u-http")
    assert whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    pieces, usage = [], None
    for chunk in client.chat.completions.create(
        model="nianlun",
        messages=messages,
        user="u-http",
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        pieces.extend(choice.delta.content or "" for choice in chunk.choices)
    assert "".join(pieces)
    assert usage is not None


def test_the_gateway_ends_its_stream_with_done(running: Stack) -> None:
    body = {"model": "nianlun", "stream": True, "messages": [{"role": "user", "content": "你好"}]}
    headers = {"Authorization": f"Bearer {running.info.key}"}
    with httpx.stream(
        "POST",
        f"{running.info.gateway}/v1/chat/completions",
        json=body,
        headers=headers,
        timeout=60,
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith(("data: ", ":")) for line in lines)


@pytest.mark.parametrize("key", ["", "nope", "nl_" + "x" * 43, "nl_' OR 1=1"])
def test_i8_the_gateway_wants_a_key(running: Stack, key: str) -> None:
    body = {"model": "nianlun", "messages": [{"role": "user", "content": "你好"}]}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(
        f"{running.info.gateway}/v1/chat/completions", json=body, headers=headers, timeout=30
    )
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "code"}
    assert "林" not in answer.text


def test_bad_requests_are_named(running: Stack) -> None:
    client = _openai(running)
    with pytest.raises(openai.BadRequestError) as empty:
        client.chat.completions.create(model="nianlun", messages=[])
    assert "messages" in str(empty.value)


def test_healthz_needs_no_key(running: Stack) -> None:
    answer = httpx.get(f"{running.info.gateway}/healthz", timeout=10)
    assert answer.status_code == 200


def test_the_key_file_is_private(running: Stack, home: Any) -> None:
    key = home / "shared" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().strip() == running.info.key


def test_the_log_holds_no_user_text_and_no_keys(running: Stack, nianlun: Client) -> None:
    secret = f"canary{uuid.uuid4().hex}"
    nianlun.append_turn("u-log", "s1", f"我的秘密是{secret}")
    _stream(nianlun, f"{secret}是什么？", user="u-log", session="s2")
    with open(running.info.log, encoding="utf-8", errors="replace") as file:
        log = file.read()
    assert "AppendTurn" in log
    assert secret not in log
    assert running.info.key not in log
