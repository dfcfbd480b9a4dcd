"""The asyncio client against the same server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nianlun import AsyncClient, JobFailedError, RunFailedError, chat_input
from nianlun.common.v1 import common_pb2
from nianlun.errors import InvalidArgumentError, UnavailableError
from nianlun.memory.v1 import memory_pb2
from nianlun.operations import memories
from tests.unit.client.conftest import Seen


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target, key="nl_test") as opened:
        yield opened


async def test_a_call_carries_key_request_id_and_deadline(client: AsyncClient, seen: Seen) -> None:
    await client.append_turn("u", "s", "你好", request_id="r-1")
    await client.memory.AppendTurn(memory_pb2.AppendTurnRequest(request_id="r-2"))
    assert [each["x-request-id"] for each in seen.metadata] == ["r-1", "r-2"]
    assert all(each["authorization"] == "Bearer nl_test" for each in seen.metadata)
    assert all(20 < each < 31 for each in seen.remaining_s)


async def test_a_call_may_have_a_key_of_its_own(client: AsyncClient, seen: Seen) -> None:
    request = memory_pb2.AppendTurnRequest(request_id="r-3")
    await client.call(memories.append_turn, request, key="nl_other")
    await client.call(memories.append_turn, request)
    assert [each["authorization"] for each in seen.metadata] == [
        "Bearer nl_other",
        "Bearer nl_test",
    ]


async def test_a_chat_has_the_deadline_of_streams_also_as_one_whole(
    client: AsyncClient, target: str, seen: Seen
) -> None:
    await client.chat(chat_input("u", "s", "hi"))
    assert 170 < seen.remaining_s[0] < 181
    async with AsyncClient(target, stream_timeout_s=60.0) as other:
        await other.chat(chat_input("u", "s", "hi"))
    assert 50 < seen.remaining_s[1] < 61


async def test_errors_are_typed(client: AsyncClient) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await client.put_fact("u", "a", "v")
    assert caught.value.violations[0].field == "attribute"


async def test_a_failure_that_no_service_has_told_of_names_the_request_that_was_sent() -> None:
    async with AsyncClient("127.0.0.1:9", timeout_s=2.0) as nobody:
        with pytest.raises(UnavailableError) as write:
            await nobody.append_turn("u", "s", "a", request_id="r-lost")
        with pytest.raises(UnavailableError) as streamed:
            await nobody.stream_chat(chat_input("u", "s", "hi"), request_id="r-chat").answer()
        with pytest.raises(UnavailableError) as brought:
            await nobody.import_user("u", ["{}"], request_id="r-import")
        with pytest.raises(UnavailableError) as watched:
            _ = [job async for job in nobody.watch_retriever_job("j")]
    assert write.value.request_id == "r-lost"
    assert streamed.value.request_id == "r-chat"
    assert brought.value.request_id == "r-import"
    assert len(watched.value.request_id) == 36


async def test_a_stream_ends_with_the_whole_answer(client: AsyncClient) -> None:
    async with client.stream_chat(chat_input("u", "s", "hi")) as events:
        texts = [event.text_delta.text async for event in events]
    assert "".join(texts) == "年轮"
    assert events.response is not None


async def test_a_run_that_failed_has_no_answer(client: AsyncClient) -> None:
    async with client.stream_chat(chat_input("u", "s", "hi")) as events:
        assert (await events.answer()).run_id == "r1"
        assert await events.answer() == events.response
    async with client.stream_chat(chat_input("u", "s", "doomed")) as events:
        with pytest.raises(RunFailedError, match="run r1 ended without an answer: no JSON came"):
            await events.answer()
        assert events.response is None
        with pytest.raises(RunFailedError):
            await events.answer()


async def test_leaving_a_stream_cancels_the_call(client: AsyncClient, seen: Seen) -> None:
    async with client.stream_chat(chat_input("u", "s", "endless")) as events:
        async for _event in events:
            break
    assert await asyncio.to_thread(seen.stream_cancelled.wait, 2.0)


async def test_waiting_for_a_job(client: AsyncClient, seen: Seen) -> None:
    job = await client.wait_job(await client.end_session("u", "s"))
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    seen.job_end = common_pb2.JOB_STATE_CANCELLED
    with pytest.raises(JobFailedError, match="cancelled"):
        await client.wait_job(await client.end_session("u", "s"))


async def test_many_calls_at_once_share_a_channel(client: AsyncClient, seen: Seen) -> None:
    await asyncio.gather(*(client.search(f"q{i}", "c") for i in range(32)))
    assert len(seen.requests) == 32
