"""A scope bounds everything a run reads: searches, tools, and documents read whole."""

from __future__ import annotations

import json

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r
from tests.support import fake_llm as llm
from tests.support.canary import wait_for_job
from tests.support.fake_llm import FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

SECRET = "canary-4417"
TEXTS = {"handbook": ("public", "# 手册\n\n默认的融合方式是校准凸组合。")} | {
    "salaries": ("internal", f"# 薪资\n\n经理的薪资是 {SECRET} 元。")
}


@pytest.fixture
async def client(thinking_stack: Stack) -> Client:
    """A tenant with a public and an internal document."""
    made = thinking_stack.client()
    await made.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="lib")
    )
    documents = [
        r.DocumentInput(
            document_id=name,
            text=text,
            content_type=r.CONTENT_TYPE_MARKDOWN,
            metadata={"audience": common_pb2.Value(string_value=audience)},
        )
        for name, (audience, text) in TEXTS.items()
    ]
    asked = r.UpsertDocumentsRequest(request_id=new_id(), collection_id="lib", documents=documents)
    job = (await made.retriever.UpsertDocuments(asked)).job
    assert (await wait_for_job(made.retriever, job.job_id)).state == common_pb2.JOB_STATE_SUCCEEDED
    return made


def _scope(audience: str, *documents: str) -> o.Scope:
    value = common_pb2.Value(string_value=audience)
    return o.Scope(collection_id="lib", document_ids=documents, metadata_equals={"audience": value})


async def _chat(client: Client, message: str, scope: o.Scope, tools: bool) -> o.ChatResponse:
    asked = o.ChatInput(message=message, use_memory=False, use_tools=tools, scope=scope)
    response: o.ChatResponse = await client.orchestrator.Chat(
        o.ChatRequest(input=asked, request_id=new_id())
    )
    return response


@pytest.mark.parametrize(("audience", "told"), [("public", False), ("internal", True)])
async def test_a_tool_opens_documents_of_the_scope_alone(
    client: Client, fake_llm: FakeLlm, audience: str, told: bool
) -> None:
    fake_llm.on(
        None, llm.tool_call("open_document", {"id": "salaries"}), llm.text("好的，看完了。")
    )
    response = await _chat(client, "打开文档 salaries。", _scope(audience), tools=True)
    asked = "".join(json.dumps(call.json, ensure_ascii=False) for call in fake_llm.chats())
    assert (SECRET in asked) == told
    assert any(SECRET in one.text for one in response.answer.evidence) == told


@pytest.mark.parametrize("message", ["经理的薪资是多少？", "总结一下。"])
@pytest.mark.parametrize(("audience", "told"), [("public", False), ("internal", True)])
async def test_a_named_document_is_read_inside_the_scope_alone(
    client: Client, fake_llm: FakeLlm, message: str, audience: str, told: bool
) -> None:
    fake_llm.on(None, llm.text("好的，看完了。"))
    response = await _chat(client, message, _scope(audience, "salaries"), tools=False)
    assert any(SECRET in call.text for call in fake_llm.chats()) == told
    lacking = {one.kind for one in response.degradations}
    assert (common_pb2.DEGRADATION_KIND_RETRIEVAL_SKIPPED in lacking) == (not told)
    assert (response.prompt_tokens.whole_documents > 0) == told
