"""Vectors from the embedder service. Never called while a database connection is held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common import deadlines, errors
from services.search.types import FloatArray


@dataclass(frozen=True)
class Embedded:
    """Vectors of some texts, by index; a text that could not be embedded has None and a reason."""

    model_id: str
    vectors: tuple[FloatArray | None, ...]
    reasons: tuple[str, ...] = ()


class Embedder(Protocol):
    """Texts in, normalised vectors out. Raises DomainError when the service cannot answer."""

    async def query(self, text: str) -> tuple[str, FloatArray]:
        """(model id, (d,) float32) of a question."""

    async def documents(self, texts: Sequence[str]) -> Embedded:
        """Vectors of texts to be found."""


class GrpcEmbedder:
    """The embedder behind a channel."""

    def __init__(
        self,
        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub,
        model: str,
        query_timeout_s: float,
    ) -> None:
        self._stub = stub
        self._model = model
        self._query_timeout_s = query_timeout_s

    async def query(self, text: str) -> tuple[str, FloatArray]:
        """See `Embedder`. Waits at most the query timeout and the call's deadline."""
        try:
            async with asyncio.timeout(deadlines.timeout(self._query_timeout_s, 0.05)):
                reply = await self._embed([text], embedder_pb2.INPUT_TYPE_QUERY)
        except TimeoutError:
            raise errors.dependency_unavailable("embedder", detail="timed out") from None
        found = reply.vectors[0]
        if found is None:
            raise errors.dependency_unavailable("embedder", detail="no vector for the query")
        return reply.model_id, found

    async def documents(self, texts: Sequence[str]) -> Embedded:
        """See `Embedder`."""
        return await self._embed(texts, embedder_pb2.INPUT_TYPE_DOCUMENT)

    async def _embed(
        self, texts: Sequence[str], input_type: embedder_pb2.InputType.ValueType
    ) -> Embedded:
        reply = await self._stub.Embed(
            embedder_pb2.EmbedRequest(
                model=self._model,
                texts=list(texts),
                input_type=input_type,
                kinds=[embedder_pb2.VECTOR_KIND_DENSE],
                truncate=embedder_pb2.TRUNCATE_POLICY_END,
            )
        )
        vectors: list[FloatArray | None] = []
        reasons: list[str] = []
        for item in reply.items:
            vectors.append(_checked(item))
            reasons.append(item.error.message if item.HasField("error") else "")
        model_id = f"{reply.model}@{reply.revision}" if reply.revision else reply.model
        return Embedded(model_id, tuple(vectors), tuple(reasons))


def _checked(item: embedder_pb2.EmbedItem) -> FloatArray | None:
    """The item's vector, normalised; None when there is none or it is zero or not finite."""
    if item.HasField("error") or not item.dense.values:
        return None
    vector = np.asarray(item.dense.values, np.float32)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length <= 0.0:
        return None
    return np.asarray(vector / length, np.float32)


def model_name(model_id: str) -> str:
    """The model's name without its revision."""
    return model_id.partition("@")[0]
