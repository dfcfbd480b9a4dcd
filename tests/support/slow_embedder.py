"""An embedder that takes its time, and notes how much of it each caller had left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import grpc

from nianlun.embedder.v1 import embedder_pb2 as e
from nianlun.embedder.v1 import embedder_pb2_grpc
from services.common.grpc.server import server_options
from services.common.settings import ChassisSettings


class SlowEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """`remaining` has the seconds each call arrived with (None: no deadline), `stopped` when."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.remaining: list[float | None] = []
        self.arrived: list[float] = []
        self.stopped: list[float] = []
        self.finished = 0
        self.port = 0

    async def Embed(self, request: e.EmbedRequest, context: Any) -> e.EmbedResponse:
        """Wait, then answer with unit vectors."""
        self.remaining.append(context.time_remaining())
        self.arrived.append(monotonic())
        try:
            await asyncio.sleep(self._delay_s)
            self.finished += 1
        finally:
            self.stopped.append(monotonic())
        vector = e.DenseVector(values=[1.0] + [0.0] * 383)
        items = [e.EmbedItem(dense=vector, token_count=3) for _ in request.texts]
        return e.EmbedResponse(items=items, model="slow", revision="1", dimensions=384)

    async def ListModels(self, request: e.ListModelsRequest, context: Any) -> Any:
        """One model."""
        model = e.Model(
            id="slow",
            revision="1",
            backend="test",
            kinds=[e.VECTOR_KIND_DENSE],
            dimensions=384,
            supported_dimensions=[384],
            max_tokens=512,
            max_chars=8000,
            max_texts=1024,
            default_embedder=True,
            ready=True,
            calibration=e.Calibration(unrelated=0.7, relevant=0.8, exact=0.95),
        )
        return e.ListModelsResponse(models=[model])


@asynccontextmanager
async def slow_embedder(delay_s: float) -> AsyncIterator[SlowEmbedder]:
    """A running one on a free port, without any key."""
    servicer = SlowEmbedder(delay_s)
    server = grpc.aio.server(options=server_options(ChassisSettings()))
    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)
