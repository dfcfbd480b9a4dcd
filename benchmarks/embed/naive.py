"""The server people write first: one `encode` per request, in a thread, behind the same
contract.
"""

from __future__ import annotations

import asyncio
import sys
from typing import NoReturn

import grpc
from sentence_transformers import SentenceTransformer

from benchmarks.embed.server import say
from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc


class Naive(embedder_pb2_grpc.EmbedderServiceServicer):
    """Embed only."""

    def __init__(self, path: str) -> None:
        self._model = SentenceTransformer(path, device="cpu")
        self._lock = asyncio.Lock()

    async def Embed(
        self,
        request: embedder_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[object, object],
    ) -> embedder_pb2.EmbedResponse:
        """What the model's own encode gives for the texts of this one request."""
        async with self._lock:
            rows = await asyncio.to_thread(self._model.encode, list(request.texts))
        response = embedder_pb2.EmbedResponse()
        for row in rows:
            response.items.add().dense.values.extend(row.tolist())
        return response

    async def Rerank(self, request: object, context: object) -> NoReturn:
        """Not served."""
        raise NotImplementedError

    async def ListModels(self, request: object, context: object) -> NoReturn:
        """Not served."""
        raise NotImplementedError


async def serve(path: str) -> None:
    """Serve until stdin ends."""
    server = grpc.aio.server()
    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(Naive(path), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say({"port": port})
    await asyncio.to_thread(sys.stdin.readline)
    await server.stop(1)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
