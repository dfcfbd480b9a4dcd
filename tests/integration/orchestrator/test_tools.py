"""What the model looks up on the way: an answer says what these searches lacked, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r
from services.common.settings import LlmSettings
from tests.support import fake_llm as llm
from tests.support.canary import ENDED, wait_for_job
from tests.support.db import Databases
from tests.support.fake_llm import Call, FakeLlm
from tests.support.proxy import CuttingProxy, cutting_proxy
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

LOOK_UP = llm.Reply(
    tool_calls=(
        ("search_knowledge", json.dumps({"query": "续租的间隔"}, ensure_ascii=False)),
        ("recall_memory", json.dumps({"query": "评论用什么"}, ensure_ascii=False)),
    )
)


@pytest.fixture
async def loose(
    databases: Databases, fake_llm: FakeLlm
) -> AsyncIterator[tuple[Stack, CuttingProxy]]:
    """(services, the connection of all of them to their embedder, which can be cut)."""
    database = databases.new()
    embedder = Stack(database, services=("embedder",), workers=False)
    await embedder.start()
    async with cutting_proxy(embedder.apps["embedder"].port) as proxy:
        stack = Stack(
            database,
            llm=fake_llm,
            services=("retriever", "memory", "orchestrator"),
            targets={"embedder": f"127.0.0.1:{proxy.port}"},
            overrides={"memory": {"llm": LlmSettings(base_url=None, api_key=None, model=None)}},
        )
        await stack.start()
        try:
            yield stack, proxy
        finally:
            await stack.stop()
            await embedder.stop()


async def _filled(client: Client) -> None:
    """A document and a turn, both with their vectors."""
    await client.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="lib")
    )
    text = "# 租约\n\n后台任务的租约是三十秒。\n\n# 心跳\n\n工作进程每五秒续租一次。"
    document = r.DocumentInput(document_id="d", text=text, content_type=r.CONTENT_TYPE_MARKDOWN)
    upserted = await client.retriever.UpsertDocuments(
        r.UpsertDocumentsRequest(request_id=new_id(), collection_id="lib", documents=[document])
    )
    job = await wait_for_job(client.retriever, upserted.job.job_id)
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    said = m.Message(role=m.ROLE_USER, text="那就选 giscus 做评论系统。")
    await client.memory.AppendTurn(
        m.AppendTurnRequest(request_id=new_id(), user_id="u", session_id="old", messages=[said])
    )
    async with asyncio.timeout(60):
        while True:
            jobs = (await client.memory.ListJobs(m.ListJobsRequest())).jobs
            if jobs and all(one.state in ENDED for one in jobs):
                return
            await asyncio.sleep(0.05)


def _looked_up(call: Call) -> bool:
    return any(one["role"] == "tool" for one in call.json["messages"])


async def test_a_tool_that_searched_by_words_alone_says_so(
    loose: tuple[Stack, CuttingProxy], fake_llm: FakeLlm
) -> None:
    stack, proxy = loose
    client = stack.client()
    await _filled(client)

    def cut(_: Call) -> bool:
        # The run's own searches are over; those of its tools find no embedder.
        proxy.cutting = True
        return True

    fake_llm.on(cut, LOOK_UP)
    fake_llm.on(_looked_up, llm.text("每五秒续租一次。[E1]"))
    asked = o.ChatInput(
        message="多久续租一次？", user_id="u", session_id="s", save_turn=False,
        scope=o.Scope(collection_id="lib"), verify=True,
    )  # fmt: skip
    stream = client.orchestrator.StreamChat(
        o.StreamChatRequest(input=asked, request_id=new_id()), timeout=60
    )
    events = [response.event async for response in stream]
    kinds = [event.WhichOneof("event") for event in events]
    first_call = kinds.index("tool_call")
    assert "notice" not in kinds[:first_call]
    lacking = events[-1].completed.response.degradations
    assert [e.notice.degradation for e in events if e.WhichOneof("event") == "notice"] == lacking
    skipped = common_pb2.DEGRADATION_KIND_DENSE_LEG_SKIPPED
    assert {
        (one.source, one.metadata.get("layer", "")) for one in lacking if one.kind == skipped
    } == {
        ("retriever", ""),
        ("memory", "turns"),
        ("memory", "episodes"),
    }
