"""Vectors from the embedder service. Never called while a database connection is held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common import deadlines, errors, status
from services.memory.vectors import ItemVectors, Model, PackedTokens, Question
from services.search import late
from services.search.types import FloatArray

_MODELS_TTL_S: Final = 30.0


@dataclass(frozen=True)
class Embedded:
    """Vectors of some texts, by index; a text that could not be embedded has None. `later`: why one
    of them may well be embedded another time, the model having been away or busy for a moment."""

    model_id: str
    items: tuple[ItemVectors | None, ...]
    later: errors.DomainError | None = None


class Embedder(Protocol):
    """Texts in, normalised vectors out. Raises DomainError when the service cannot answer."""

    async def model(self) -> Model:
        """The model in use."""

    async def query(self, text: str) -> Question:
        """Vectors of a question."""

    async def documents(self, texts: Sequence[str]) -> Embedded:
        """Vectors of texts to be found."""


class GrpcEmbedder:
    """The embedder behind a channel. Remembers for half a minute what its model can do."""

    def __init__(
        self,
        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub,
        model: str,
        query_timeout_s: float,
    ) -> None:
        self._stub = stub
        self._model = model
        self._query_timeout_s = query_timeout_s
        self._info: embedder_pb2.Model | None = None
        self._info_until = 0.0

    async def model(self) -> Model:
        """See `Embedder`."""
        info = await self._model_info()
        return Model(_model_id(info.id, info.revision), info.multi_vector_codec)

    async def query(self, text: str) -> Question:
        """See `Embedder`. Waits at most the query timeout and the call's deadline."""
        try:
            async with asyncio.timeout(deadlines.timeout(self._query_timeout_s, 0.05)):
                reply = await self._embed([text], embedder_pb2.INPUT_TYPE_QUERY)
        except TimeoutError:
            raise errors.dependency_unavailable("embedder", detail="timed out") from None
        item = reply.items[0]
        vector = _checked(item)
        if vector is None:
            raise errors.dependency_unavailable("embedder", detail="no vector for the query")
        model_id = _model_id(reply.model, reply.revision)
        if not item.multi_vector.codec:
            return Question(model_id, vector)
        return Question(model_id, vector, item.multi_vector.codec, _rows(item.multi_vector))

    async def documents(self, texts: Sequence[str]) -> Embedded:
        """See `Embedder`."""
        reply = await self._embed(texts, embedder_pb2.INPUT_TYPE_DOCUMENT)
        failures = (status.from_item(i.error) for i in reply.items if i.HasField("error"))
        return Embedded(
            _model_id(reply.model, reply.revision),
            tuple(map(_stored, reply.items)),
            next((e for e in failures if e.retryable), None),
        )

    async def _model_info(self) -> embedder_pb2.Model:
        """The model asked for, or the default one. The last known one while the service is away."""
        if self._info is None or time.monotonic() >= self._info_until:
            try:
                reply = await self._stub.ListModels(embedder_pb2.ListModelsRequest())
            except errors.DomainError:
                if self._info is None:
                    raise
                return self._info
            found = [m for m in reply.models if m.id == self._model or (
                not self._model and m.default_embedder
            )]  # fmt: skip
            if not found:
                raise errors.dependency_unavailable("embedder", detail="does not serve the model")
            self._info = found[0]
            self._info_until = time.monotonic() + _MODELS_TTL_S
        return self._info

    async def _embed(
        self, texts: Sequence[str], input_type: embedder_pb2.InputType.ValueType
    ) -> embedder_pb2.EmbedResponse:
        info = await self._model_info()
        request = embedder_pb2.EmbedRequest(
            model=self._model,
            texts=list(texts),
            input_type=input_type,
            kinds=[embedder_pb2.VECTOR_KIND_DENSE],
            truncate=embedder_pb2.TRUNCATE_POLICY_END,
        )
        if info.multi_vector_codec:
            request.kinds.append(embedder_pb2.VECTOR_KIND_MULTI_VECTOR)
            request.multi_vector_encoding = embedder_pb2.MULTI_VECTOR_ENCODING_COMPRESSED
        return await self._stub.Embed(request)


def _model_id(name: str, revision: str) -> str:
    return f"{name}@{revision}" if revision else name


def _checked(item: embedder_pb2.EmbedItem) -> FloatArray | None:
    """The item's vector, normalised; None when there is none or it is zero or not finite."""
    if item.HasField("error") or not item.dense.values:
        return None
    vector = np.asarray(item.dense.values, np.float32)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length <= 0.0:
        return None
    return np.asarray(vector / length, np.float32)


def _rows(many: embedder_pb2.MultiVector) -> FloatArray:
    """Token vectors (count, dimensions) of length 1."""
    whole = np.frombuffer(many.values, np.int8).reshape(-1, many.dimensions)
    # The factor of a row is the same for all of its numbers: it goes with the length.
    lengths = np.linalg.norm(whole.astype(np.float32), axis=1, keepdims=True)
    return np.asarray(whole / np.maximum(lengths, 1e-9), np.float32)


def _stored(item: embedder_pb2.EmbedItem) -> ItemVectors | None:
    vector = _checked(item)
    if vector is None:
        return None
    if not item.multi_vector.codec:
        return ItemVectors(vector)
    packed = late.quantise(_rows(item.multi_vector))
    return ItemVectors(vector, PackedTokens(item.multi_vector.codec, packed))


def model_name(model_id: str) -> str:
    """The model's name without its revision."""
    return model_id.partition("@")[0]
