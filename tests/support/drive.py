"""The whole path through a running system, from outside: remember, recall, ingest, search, answer.

Used wherever a system runs that is not in this process: containers, and what stands in for them.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from nianlun import Client, NianlunError, assistant_message, document, user_message
from nianlun.retriever.v1 import retriever_pb2 as r
from tests.support.keys import random_key

_TEXT = """# Leases

A background job is leased for thirty seconds. A worker that is gone loses it to another one.
"""


def drive(targets: Mapping[str, str], key: str, gateway: str) -> str:
    """Every service does its part, and a wrong key is refused; returns the user that was made."""
    user = f"u-{uuid.uuid4().hex[:8]}"
    with Client(dict(targets), key=key, timeout_s=60) as client:
        receipt = remember(client, user)
        loaded = client.load_memory(user, "我叫什么？", session_id="s2", at_least=receipt)
        assert "林晓雨" in loaded.rendered, loaded.rendered
        collection = f"docs-{uuid.uuid4().hex[:8]}"
        client.create_collection(collection)
        answer = client.upsert_documents(
            collection, [document("leases.md", _TEXT, content_type=r.CONTENT_TYPE_MARKDOWN)]
        )
        client.wait_job(answer)
        found = client.search("How long is a job leased?", collection)
        assert "thirty seconds" in found.hits[0].chunk.text
    status, body = chat(gateway, key, "What is my name?", user)
    assert status == 200, body
    assert body["choices"][0]["message"]["content"]
    refused, _ = chat(gateway, random_key(), "Anyone there?", user)
    assert refused == 401
    with (
        Client(dict(targets), key=random_key(), timeout_s=10) as stranger,
        pytest.raises((NianlunError, grpc.RpcError), match="UNAUTHENTICATED"),
    ):
        stranger.load_memory(user, "我叫什么？")
    return user


def remember(client: Client, user: str) -> Any:
    """One exchange, and its position."""
    said = user_message("我叫林晓雨，是一名前端工程师。以后回答请简短一点。")
    return client.append_turn(user, "s1", [said, assistant_message("好的，林晓雨。")]).position


def chat(gateway: str, key: str, question: str, user: str) -> tuple[int, dict[str, Any]]:
    """The OpenAI front of the gateway: status and body."""
    request = urllib.request.Request(
        f"{gateway}/v1/chat/completions",
        data=json.dumps(
            {
                "model": "nianlun",
                "user": user,
                "messages": [{"role": "user", "content": question}],
            }
        ).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def recall_over_mcp(url: str, key: str, user: str) -> None:
    """The official MCP client recalls what ``drive`` told of the user; without a good key nothing
    is answered."""
    import httpx2
    from mcp import Client as McpClient
    from mcp.client.streamable_http import streamable_http_client

    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream", "x-nianlun-user": user}
    async with httpx2.AsyncClient(headers=accept, timeout=30) as http:
        assert (await http.post(url, json=asked)).status_code == 401
        wrong = {"authorization": f"Bearer {random_key()}"}
        assert (await http.post(url, json=asked, headers=wrong)).status_code == 401
    good = accept | {"authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=good, timeout=30) as http,
        McpClient(streamable_http_client(url, http_client=http)) as client,
    ):
        found = await client.call_tool("recall", {"query": "我叫什么？"})
        assert not found.is_error
        assert "林晓雨" in found.structured_content["memory"]
