"""Callers: closed loops over gRPC and HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import grpc
import httpx

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc

METADATA = (("authorization", "Bearer nl_" + "b" * 43),)
Call = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def stub(port: int) -> AsyncIterator[embedder_pb2_grpc.EmbedderServiceAsyncStub]:
    """A stub on a channel of its own."""
    options = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield embedder_pb2_grpc.EmbedderServiceStub(channel)


async def embed(
    caller: embedder_pb2_grpc.EmbedderServiceAsyncStub,
    texts: Sequence[str],
    input_type: embedder_pb2.InputType.ValueType = embedder_pb2.INPUT_TYPE_DOCUMENT,
) -> embedder_pb2.EmbedResponse:
    """One call; every item must be good."""
    response = await caller.Embed(
        embedder_pb2.EmbedRequest(texts=texts, input_type=input_type),
        metadata=METADATA,
        timeout=600,
    )
    if any(item.HasField("error") for item in response.items):
        raise RuntimeError("an item failed")
    return response


async def closed_loop(call: Call, texts: Sequence[str], callers: int) -> float:
    """Texts a second when each of `callers` sends its next text as soon as it has an answer."""
    waiting = iter(texts)

    async def one() -> None:
        for text in waiting:
            await call(text)

    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(callers)])
    return len(texts) / (time.perf_counter() - began)


def grpc_throughput(port: int, texts: Sequence[str], callers: int, warm: Sequence[str]) -> float:
    """Texts a second over gRPC, one text a call."""

    async def run() -> float:
        async with stub(port) as caller:

            async def call(text: str) -> None:
                await embed(caller, [text])

            await closed_loop(call, warm, callers)
            return await closed_loop(call, texts, callers)

    return asyncio.run(run())


def http_throughput(
    url: str, model: str, texts: Sequence[str], callers: int, warm: Sequence[str]
) -> float:
    """Texts a second over an OpenAI-compatible endpoint, one text a call."""

    async def run() -> float:
        limits = httpx.Limits(max_connections=callers)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) as client:

            async def call(text: str) -> None:
                answer = await client.post("/embeddings", json={"model": model, "input": [text]})
                answer.raise_for_status()

            await closed_loop(call, warm, callers)
            return await closed_loop(call, texts, callers)

    return asyncio.run(run())
