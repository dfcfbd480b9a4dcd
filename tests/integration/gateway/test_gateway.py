"""The OpenAI-compatible endpoints, with the official client and with bare HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from typing import Any

import httpx
import openai
import pytest

from tests.integration.gateway.conftest import Gateway
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm
from tests.support.gateway import serving

ASK: Any = [{"role": "user", "content": "用一句话介绍年轮。"}]
PLAN = {
    "title": "学 gRPC",
    "goal": "会用",
    "steps": [{"order": 1, "title": "读", "goal": "懂", "sources": []}],
}


async def test_a_whole_answer(client: openai.AsyncOpenAI, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("年轮记录树的一生。"))
    answer = await client.chat.completions.create(model="nianlun", messages=ASK)
    assert answer.choices[0].message.content == "年轮记录树的一生。"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


async def test_a_streamed_answer_with_usage(client: openai.AsyncOpenAI, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("年轮记录树的一生，一年一圈。"))
    pieces, finishes, usages = [], [], []
    stream = await client.chat.completions.create(
        model="nianlun", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert "".join(pieces) == "年轮记录树的一生，一年一圈。"
    assert len([p for p in pieces if p]) > 1
    assert finishes == ["stop"]
    assert len(usages) == 1


async def test_the_last_chunk_has_the_answer_that_its_citations_point_into(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("\n  天空是蓝的。[E1, E7] 这是选中的话。 【e1】"))
    stream = await client.chat.completions.create(
        model="nianlun",
        messages=ASK,
        stream=True,
        extra_body={"nianlun": {"selected_text": "天空是蓝色的。"}},
    )
    chunks = [chunk async for chunk in stream]
    streamed = "".join(choice.delta.content or "" for one in chunks for choice in one.choices)
    assert "[E1, E7]" in streamed
    assert chunks[-1].model_extra is not None
    told = chunks[-1].model_extra["nianlun"]
    assert told["answer"] == "天空是蓝的。[E1] 这是选中的话。 [E1]"
    marks = [told["answer"][one["start"] : one["end"]] for one in told["citations"]]
    assert marks == ["[E1]", "[E1]"]


async def test_the_stream_is_sse_and_ends_with_done(gate: Gateway, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("好。"))
    body = {"model": "nianlun", "stream": True, "messages": ASK}
    async with (
        httpx.AsyncClient() as http,
        http.stream(
            "POST", f"{gate.url}/v1/chat/completions", json=body, headers=gate.headers
        ) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"]
        lines = [line async for line in answer.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)
    assert not any('"usage": {' in line for line in lines)


async def test_history_and_system_text_reach_the_model(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    messages: Any = [
        {"role": "system", "content": "只用文言文。"},
        {"role": "user", "content": "第一问"},
        {"role": "assistant", "content": "第一答"},
        {"role": "user", "content": [{"type": "text", "text": "第二问"}]},
    ]
    await client.chat.completions.create(model="nianlun", messages=messages)
    sent = fake_llm.chats()[-1].json["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "user"]
    assert "只用文言文。" in sent[0]["content"]
    assert sent[-1]["content"] == "第二问"


async def test_json_object_is_a_plan_and_json_schema_is_obeyed(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text(f"好的：```json\n{json.dumps(PLAN, ensure_ascii=False)}\n```"))
    answer = await client.chat.completions.create(
        model="nianlun", messages=ASK, response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content or "") == PLAN
    schema = {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}},
        "additionalProperties": False,
    }
    fake_llm.reset()
    fake_llm.on(None, llm.text('{"town": 1}'), llm.text('{"city": "成都"}'))
    answer = await client.chat.completions.create(
        model="nianlun",
        messages=[{"role": "user", "content": "我住在成都，提取城市。"}],
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "") == {"city": "成都"}
    assert len(fake_llm.chats()) == 2  # one repair


@pytest.mark.parametrize(
    ("message", "intent"),
    [
        ("帮我总结一下这份规划", "personalised_summary"),
        ("给我一份学习计划", "document_question"),
        ("列出作者", "document_question"),
        ("How does the extract step work?", "document_question"),
    ],
)
async def test_whoever_asks_for_text_is_answered_in_prose(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm, message: str, intent: str
) -> None:
    fake_llm.on(None, llm.text("好的，如下。"))
    answer = await client.chat.completions.create(
        model="nianlun/lib",
        messages=[{"role": "user", "content": message}],
        extra_body={"nianlun": {"document_ids": ["d"]}},
    )
    assert answer.choices[0].message.content == "好的，如下。"
    assert answer.model_extra is not None
    assert answer.model_extra["nianlun"]["intent"] == intent


async def test_json_that_never_validates_is_a_clear_error(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("我不会写 JSON。"))
    schema = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer", "minimum": 5}},
    }
    # As it comes, the client repeats what ended with a 5xx, 408, 409 or 429: it must not here.
    stubborn = client.with_options(max_retries=openai.DEFAULT_MAX_RETRIES)
    with pytest.raises(openai.UnprocessableEntityError) as failed:
        await stubborn.chat.completions.create(
            model="nianlun",
            messages=ASK,
            response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
        )
    assert failed.value.code == "model_failed"
    assert failed.value.type == "invalid_request_error"
    assert len(fake_llm.chats()) == 2, "asked, and asked to repair: once, not once more a retry"


async def test_a_model_that_is_away_fails_a_stream_as_it_fails_a_whole_answer(
    gate: Gateway, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.failure(503))
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}
    body = {"model": "nianlun", "messages": ASK, "response_format": wanted}
    async with httpx.AsyncClient(timeout=30) as http:
        post = f"{gate.url}/v1/chat/completions"
        whole = await http.post(post, json=body, headers=gate.headers)
        streamed = await http.post(post, json={**body, "stream": True}, headers=gate.headers)
    assert (whole.status_code, whole.headers["retry-after"]) == (503, "1")
    assert whole.json()["error"]["code"] == "model_unavailable"
    lines = [line for line in streamed.text.splitlines() if '"error"' in line]
    assert [json.loads(line.removeprefix("data: ")) for line in lines] == [whole.json()]


async def test_i8_no_key_no_answer(gate: Gateway) -> None:
    async with httpx.AsyncClient() as http:
        for headers in (
            {},
            {"authorization": "Bearer nope"},
            {"authorization": "Basic abc"},
            {"authorization": "Bearer nl_" + "x" * 43},
        ):
            for path in ("/v1/chat/completions", "/v1/embeddings", "/api/orchestrator/ListRuns"):
                body = {"model": "nianlun", "messages": ASK, "input": "x"}
                if path.startswith("/api"):
                    body = {}
                answer = await http.post(gate.url + path, json=body, headers=headers)
                assert answer.status_code == 401, (path, headers, answer.text)
                assert answer.json()["error"]["code"] == "invalid_api_key"


async def test_bodies_have_a_limit(gate: Gateway) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            f"{gate.url}/v1/chat/completions", content=b"x" * 300_000, headers=gate.headers
        )
    assert answer.status_code == 413
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            f"{gate.url}/v1/chat/completions", content=b"{oops", headers=gate.headers
        )
    assert answer.status_code == 400


async def test_g7_a_browser_that_goes_away_ends_the_model_call(
    gate: Gateway, fake_llm: FakeLlm
) -> None:
    # The whole answer would take minutes.
    fake_llm.on(None, llm.text("长" * 8_000, piece_delay_s=0.1))
    body = {"model": "nianlun", "stream": True, "messages": ASK}
    async with (
        httpx.AsyncClient() as http,
        http.stream(
            "POST", f"{gate.url}/v1/chat/completions", json=body, headers=gate.headers
        ) as answer,
    ):
        async for line in answer.aiter_lines():
            if "长" in line:
                break
    call = fake_llm.chats()[0]
    assert await asyncio.to_thread(call.ended.wait, 20), "the model went on"
    assert call.disconnected_at is not None


async def test_embeddings_as_floats_and_as_base64(client: openai.AsyncOpenAI) -> None:
    floats = await client.embeddings.create(
        model="nianlun", input=["年轮", "tree ring"], encoding_format="float"
    )
    assert [one.index for one in floats.data] == [0, 1]
    coded = await client.embeddings.create(model="nianlun", input="年轮", encoding_format="base64")
    raw = coded.data[0].embedding
    values = (
        list(struct.unpack(f"<{len(base64.b64decode(raw)) // 4}f", base64.b64decode(raw)))
        if isinstance(raw, str)
        else raw
    )
    assert values == pytest.approx(floats.data[0].embedding, abs=1e-5)
    assert floats.usage.prompt_tokens > 0


async def test_a_text_over_the_limit_is_refused_or_cut_as_the_caller_asks(
    client: openai.AsyncOpenAI,
) -> None:
    texts = ["年轮", "tree " * 30_000]
    for extra in ({}, {"truncate": False}, {"truncate": "NONE"}):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.embeddings.create(
                model="nianlun", input=texts, encoding_format="float", extra_body=extra
            )
        assert refused.value.code == "text_too_long"
        assert refused.value.param == "input"
        assert "input[1]" in refused.value.message
    for wanted in (True, "END"):
        cut = await client.embeddings.create(
            model="nianlun",
            input=texts,
            encoding_format="float",
            extra_body={"truncate": wanted},
        )
        assert [(one.model_extra or {}).get("truncated") for one in cut.data] == [None, True]
    with pytest.raises(openai.BadRequestError) as unknown:
        await client.embeddings.create(
            model="nianlun", input=texts, extra_body={"truncate": "START"}
        )
    assert unknown.value.param == "truncate"


async def test_rerank_and_models(gate: Gateway, client: openai.AsyncOpenAI) -> None:
    body = {"query": "树的年龄", "documents": ["年轮可以看出树龄", "今天股市上涨"], "top_n": 1}
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(f"{gate.url}/v1/rerank", json=body, headers=gate.headers)
    assert answer.status_code == 200, answer.text
    assert [one["index"] for one in answer.json()["results"]] == [0]
    names = [model.id async for model in client.models.list()]
    assert names[0] == "nianlun"
    assert len(names) > 1
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody/knows")


async def test_healthz_says_who_is_there(gate: Gateway) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{gate.url}/healthz")
    assert answer.status_code == 200
    states = answer.json()["services"]
    assert states["orchestrator"] == "serving"
    assert states["memory"] == "unreachable"


async def test_the_same_idempotency_key_answers_once(gate: Gateway, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("一。"), llm.text("二。"))
    body = {"model": "nianlun", "messages": ASK}
    headers = gate.headers | {"idempotency-key": f"k-{time.time()}"}
    async with httpx.AsyncClient() as http:
        answers = [
            (await http.post(f"{gate.url}/v1/chat/completions", json=body, headers=headers)).json()
            for _ in range(2)
        ]
    assert [a["choices"][0]["message"]["content"] for a in answers] == ["一。", "一。"]
    assert answers[1]["nianlun"]["replayed"]
    assert len(fake_llm.chats()) == 1


async def test_every_rpc_is_there_as_json(gate: Gateway, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("好的。"))
    async with httpx.AsyncClient(timeout=30) as http:
        ask = {"input": {"message": "你好", "save_turn": False}, "request_id": f"r-{time.time()}"}
        chat = await http.post(f"{gate.url}/api/orchestrator/Chat", json=ask, headers=gate.headers)
        assert chat.json()["answer"]["text"] == "好的。"
        ask["request_id"] += "-2"
        events = await http.post(
            f"{gate.url}/api/orchestrator/StreamChat", json=ask, headers=gate.headers
        )
        seen = [json.loads(line[6:]) for line in events.text.splitlines() if line]
        assert "completed" in seen[-1]["event"]
        unknown = await http.post(f"{gate.url}/api/orchestrator/Nope", headers=gate.headers)
        assert unknown.status_code == 404
        wrong = await http.post(
            f"{gate.url}/api/orchestrator/Chat", json={"x": 1}, headers=gate.headers
        )
        assert wrong.status_code == 400


async def test_browsers_of_other_origins_are_let_in_only_where_named(gate: Gateway) -> None:
    # What the official client for browsers and the documentation send.
    sent = (
        "authorization,content-type,idempotency-key,openai-organization,x-nianlun-collection,"
        "x-nianlun-session,x-nianlun-user,x-request-id,x-session-id,x-stainless-arch,"
        "x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,"
        "x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout"
    )
    asks = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": sent,
    }
    named = serving(gate.stack, cors_origins="https://app.example")
    async with named as url, httpx.AsyncClient() as http:
        let_in = await http.options(f"{url}/v1/chat/completions", headers=asks)
        other = asks | {"origin": "https://evil.example"}
        refused = await http.options(f"{url}/v1/chat/completions", headers=other)
        off = await http.options(f"{gate.url}/v1/chat/completions", headers=asks)
        failed = await http.get(f"{url}/v1/models", headers={"origin": "https://app.example"})
    assert let_in.status_code == 200, let_in.text
    assert let_in.headers["access-control-allow-origin"] == "https://app.example"
    allowed = {one.strip() for one in let_in.headers["access-control-allow-headers"].split(",")}
    assert set(sent.split(",")) <= allowed
    assert "access-control-allow-credentials" not in let_in.headers
    assert failed.status_code == 401
    readable = {one.strip() for one in failed.headers["access-control-expose-headers"].split(",")}
    assert readable == {"x-request-id", "retry-after"}
    for answer in (refused, off):
        assert "access-control-allow-origin" not in answer.headers
