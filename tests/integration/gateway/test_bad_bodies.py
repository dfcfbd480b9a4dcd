"""G9 over HTTP: whatever is sent, the answer has OpenAI's form and names the field at fault."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.integration.gateway.conftest import Gateway
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm

ASK: Any = [{"role": "user", "content": "用一句话介绍年轮。"}]
IMAGE = "messages[0].content"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 9}, "temperature"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"nianlun": {"intent": "divination"}}, "intent"),
        ({"messages": [{"role": "user", "content": "x" * 32_001}]}, "messages"),
        ({"messages": [{"role": "system", "content": "x" * 9_000}, *ASK]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}, *ASK]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, IMAGE),
        ({"messages": [None]}, "messages[0]"),
        ({"messages": "hi"}, "messages"),
        ({"model": 5}, "model"),
        ({"model": "nianlun/" + "c" * 300}, "collection_id"),
        ({"user": 5}, "user"),
        ({"n": True}, "n"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"stop": ["x"]}, "stop"),
        ({"top_p": "x"}, "top_p"),
        ({"seed": "x"}, "seed"),
        ({"presence_penalty": 9}, "presence_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": None, "max_tokens": -1}, "max_tokens"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "x"}}, "stream_options"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"session_id": "s" * 300}}, "session_id"),
        ({"metadata": {"document_ids": "a,b"}}, "collection_id"),
        ({"metadata": {"use_memory": "maybe"}}, "use_memory"),
        ({"metadata": {"use_memory": [1]}}, "use_memory"),
        ({"metadata": {"time_zone": "Mars/One"}}, "time_zone"),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)
async def test_bad_requests_name_the_field(
    gate: Gateway, change: dict[str, Any], param: str
) -> None:
    body = {"model": "nianlun", "messages": ASK} | change
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{gate.url}/v1/chat/completions", json=body, headers=gate.headers)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


HI = '{"messages":[{"role":"user","content":"hi"}]'


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", HI + ',"temperature":' + "9" * 400 + "}", "temperature"),
        ("/v1/chat/completions", HI + ',"temperature":NaN}', "temperature"),
        ("/v1/chat/completions", HI + ',"stream":"no"}', "stream"),
        ("/v1/chat/completions", HI + ',"metadata":{"document_title":5}}', "document_title"),
        ("/v1/chat/completions", HI + ',"metadata":{"intent":{}}}', "intent"),
        ("/v1/chat/completions", HI + ',"metadata":{"top_k":true}}', "top_k"),
        ("/v1/chat/completions", '{"messages":[{"role":{},"content":"x"}]}', "messages[0].role"),
        (
            "/v1/chat/completions",
            '{"messages":[{"role":"user","content":[{"type":"text","text":{"a":1}}]}]}',
            "messages[0].content",
        ),
        (
            "/v1/chat/completions",
            HI + ',"response_format":{"type":"json_schema","json_schema":"x"}}',
            "response_format",
        ),
        (
            "/v1/chat/completions",
            HI + ',"response_format":{"type":"json_schema","json_schema":{"schema":'
            '{"$ref":"#/nope"}}}}',
            "response_format",
        ),
        (
            "/v1/chat/completions",
            HI + ',"response_format":{"type":"json_schema","json_schema":{"schema":'
            '{"pattern":"(("}}}}',
            "response_format",
        ),
        ("/v1/embeddings", '{"input":"x","input_type":{"a":1}}', "input_type"),
    ],
)
async def test_g9_wrong_types_are_named(gate: Gateway, path: str, body: str, param: str) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(gate.url + path, content=body, headers=gate.headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", '{"messages":[{"role":"user","content":"a\\ud800b"}]}'),
        ("/v1/chat/completions", HI + ',"user":"u\\uDFFF"}'),
        ("/v1/chat/completions", '{"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'),
        ("/v1/embeddings", '{"input":["a\\udc00"]}'),
        ("/v1/rerank", '{"query":"a\\ud800","documents":["x\\ud800"]}'),
    ],
)
async def test_g9_half_characters_are_replaced(
    gate: Gateway, fake_llm: FakeLlm, path: str, body: str
) -> None:
    fake_llm.on(None, llm.text("好。"))
    async with httpx.AsyncClient() as http:
        answer = await http.post(gate.url + path, content=body, headers=gate.headers, timeout=30)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_key_for_retries_that_is_too_long_is_refused_and_never_cut(
    gate: Gateway, streamed: bool
) -> None:
    body = {"model": "nianlun", "messages": ASK, "stream": streamed}
    headers = gate.headers | {"idempotency-key": "k" * 129}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{gate.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Idempotency-Key"


async def test_headers_may_hold_chinese(gate: Gateway, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("好。"))
    headers = {"x-nianlun-user": "用户一", "x-nianlun-session": "会话一"}
    raw = gate.headers | {name: value.encode() for name, value in headers.items()}
    body = {"model": "nianlun", "messages": ASK}
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(f"{gate.url}/v1/chat/completions", json=body, headers=raw)
        asked = {"run_id": answer.json()["nianlun"]["run_id"]}
        run = await http.post(f"{gate.url}/api/orchestrator/GetRun", json=asked, headers=raw)
    assert run.json()["run"]["user_id"] == "用户一"
    assert run.json()["run"]["session_id"] == "会话一"


async def test_a_schema_that_allows_everything(
    client: openai.AsyncOpenAI, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text('{"any": ["thing"]}'))
    answer = await client.chat.completions.create(
        model="nianlun",
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": {}}},
    )
    assert json.loads(answer.choices[0].message.content or "") == {"any": ["thing"]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'"x"',
        b"null",
        b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'{"messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"messages":[{"role":"user","content":"a"}],"user":' + b"1" * 5_000 + b"}",
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/rerank"])
async def test_g9_bodies_that_are_none(gate: Gateway, path: str, raw: bytes) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(gate.url + path, content=raw, headers=gate.headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"input": [1, 2]}, 400),
        ("/v1/embeddings", {"input": [""]}, 400),
        ("/v1/embeddings", {"input": "x", "dimensions": 10_000}, 400),
        ("/v1/embeddings", {"input": "x", "model": "nope"}, 400),
        ("/v1/embeddings", {"input": ["x"] * 4_000}, 400),
        ("/v1/rerank", {"query": "x", "documents": [5]}, 400),
        ("/v1/rerank", {"query": "x", "documents": ["a"], "top_n": 0}, 400),
        ("/v1/rerank", {"query": "x", "documents": []}, 200),
        ("/v1/nope", {}, 404),
        ("/api/memory/Nope", {}, 404),
        ("/api/memory/ImportUser", {}, 501),
        ("/api/orchestrator/Chat", {"input": {"intent": "INTENT_NOPE"}}, 400),
        ("/api/orchestrator/ListRuns", {"page_size": -1}, 400),
        ("/api/orchestrator/ListRuns", {"page_token": "zzz"}, 400),
        ("/api/orchestrator/GetRun", {"run_id": "x"}, 400),
    ],
)
async def test_g9_other_endpoints_answer_in_the_same_form(
    gate: Gateway, path: str, body: dict[str, Any], status: int
) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(gate.url + path, json=body, headers=gate.headers)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
