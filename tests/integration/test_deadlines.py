"""G1: one second of the caller is one second for everybody behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.support.calls import invoke
from tests.support.contract import BY_NAME
from tests.support.db import Databases
from tests.support.requests import REQUESTS, Ids
from tests.support.slow_embedder import SlowEmbedder, slow_embedder
from tests.support.stack import Stack

LIMIT_S = 2.0


@pytest.fixture(scope="module")
async def slow(databases: Databases) -> AsyncIterator[tuple[Stack, SlowEmbedder]]:
    """Memory and orchestrator in front of an embedder that takes for ever."""
    async with slow_embedder(600.0) as embedder:
        target = f"127.0.0.1:{embedder.port}"
        stack = Stack(
            databases.new(),
            workers=False,
            services=("retriever", "memory", "orchestrator"),
            targets={"embedder": target},
        )
        await stack.start()
        try:
            yield stack, embedder
        finally:
            await stack.stop()


@pytest.mark.parametrize(
    "name", ["memory.LoadMemory", "memory.SearchTurns", "orchestrator.BuildContext"]
)
async def test_g1_each_service_sees_what_is_left(
    slow: tuple[Stack, SlowEmbedder], name: str
) -> None:
    stack, embedder = slow
    client = stack.client()
    ids = Ids(user_id="g1", collection_id="g1")
    await client.retriever.CreateCollection(REQUESTS["retriever.CreateCollection"](ids))
    await client.memory.AppendTurn(REQUESTS["memory.AppendTurn"](ids))
    embedder.remaining.clear()
    embedder.stopped.clear()
    rpc = BY_NAME[name]
    outcome = await invoke(
        stack.channel(rpc.service),
        rpc,
        REQUESTS[name](ids),
        metadata=client.tenant.metadata,
        timeout=LIMIT_S,
    )
    # In time without the vectors, and saying so, or out of time: never late.
    assert outcome.code in {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}, outcome
    assert embedder.remaining
    if outcome.ok:
        assert outcome.messages[0].degradations
    for seen in embedder.remaining:
        assert seen is not None
        assert 0 < seen < LIMIT_S
    await _all_stopped(embedder)


async def test_g1_a_caller_that_leaves_stops_everything(
    slow: tuple[Stack, SlowEmbedder],
) -> None:
    stack, embedder = slow
    client = stack.client()
    ids = Ids(user_id="g1-cancel")
    await client.memory.AppendTurn(REQUESTS["memory.AppendTurn"](ids))
    embedder.remaining.clear()
    embedder.stopped.clear()
    call = client.memory.LoadMemory(REQUESTS["memory.LoadMemory"](ids), timeout=30)
    waiting = asyncio.ensure_future(_quietly(call))
    while not embedder.remaining and not waiting.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert embedder.remaining
    call.cancel()
    await waiting
    await _all_stopped(embedder)


async def _all_stopped(embedder: SlowEmbedder) -> None:
    """Nobody is worked for any more, and nobody's work was done."""
    async with asyncio.timeout(20):
        while len(embedder.stopped) < len(embedder.remaining):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert embedder.finished == 0


async def _quietly(call: grpc.aio.UnaryUnaryCall) -> None:
    try:
        await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return
