"""W13: an answer that is lost on the way is asked for again, and nothing happens twice."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from nianlun.memory.v1 import memory_pb2 as m
from nianlun.memory.v1 import memory_pb2_grpc
from tests.support.proxy import cutting_proxy
from tests.support.requests import REQUESTS, Ids
from tests.support.stack import Client, Stack

NO_RETRY = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


async def test_w13_the_same_append_after_a_cut_connection_is_one_turn(
    stack: Stack, client: Client
) -> None:
    request = REQUESTS["memory.AppendTurn"](Ids(user_id="w13"))
    async with cutting_proxy(stack.apps["memory"].port) as proxy:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}", NO_RETRY) as channel:
            await channel.channel_ready()
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            proxy.cutting = True
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await stub.AppendTurn(request, metadata=client.tenant.metadata, timeout=10)
            assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
            assert proxy.cuts == 1
        proxy.cutting = False
        async with grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}", NO_RETRY) as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            receipts = [
                await stub.AppendTurn(request, metadata=client.tenant.metadata, timeout=10)
                for _ in range(2)
            ]
    assert receipts[0] == receipts[1]
    assert receipts[0].sequence == 1
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="w13"))).turns
    assert [turn.turn_id for turn in turns] == [receipts[0].turn_id]
    jobs = (await client.memory.ListJobs(m.ListJobsRequest())).jobs
    mine = [job.job_id for job in jobs if "summary" not in job.kind]
    assert mine.count(receipts[0].job_id) == 1


async def test_w13_parallel_duplicates_are_one_turn(client: Client) -> None:
    request = REQUESTS["memory.AppendTurn"](Ids(user_id="w13-parallel"))
    receipts = await asyncio.gather(*(client.memory.AppendTurn(request) for _ in range(20)))
    assert len({receipt.turn_id for receipt in receipts}) == 1
    assert len({receipt.job_id for receipt in receipts}) == 1
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="w13-parallel"))).turns
    assert len(turns) == 1


async def test_w13_a_chat_asked_twice_is_answered_once(client: Client) -> None:
    request = REQUESTS["orchestrator.Chat"](Ids(user_id="w13-chat"))
    first, second = await asyncio.gather(
        client.orchestrator.Chat(request), client.orchestrator.Chat(request)
    )
    assert first.run_id == second.run_id
    assert first.answer.text == second.answer.text
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="w13-chat"))).turns
    assert len(turns) == 1
