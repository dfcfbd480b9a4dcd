"""The embedding service as the retriever needs it: a seam, and its gRPC client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import grpc.aio
import numpy as np
from google.protobuf.duration_pb2 import Duration

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common import logs, status
from services.common.errors import DomainError
from services.retriever import late
from services.retriever.domain import TokenVectors, Vector

_BATCH: Final = 32
_BATCH_CHARS: Final = 200_000
_PARALLEL: Final = 2
_CALL_S: Final = 120.0
_MODELS_TTL_S: Final = 30.0
_MAX_RERANK_CHARS: Final = 4_000
_ROUNDING: Final = 1e-3


@dataclass(frozen=True)
class ModelInfo:
    """A served model. `codec`: of its compressed token vectors, "" where it has none."""

    model_id: str
    revision: str
    dimensions: int
    max_texts: int
    codec: str
    default_embedder: bool
    can_rerank: bool
    default_reranker: bool
    unrelated: float = 0.0
    relevant: float = 0.0
    exact: float = 0.0


@dataclass(frozen=True)
class Embedded:
    """One text's vectors. `vector` None: the model could not embed this text, and `error` says why:
    the text itself, or a model that was away for a moment (`error.retryable`)."""

    vector: Vector | None
    tokens: TokenVectors | None = None
    error: DomainError | None = None


@dataclass(frozen=True)
class Batch:
    """Vectors of several texts, in their order."""

    model_id: str
    revision: str
    dimensions: int
    items: tuple[Embedded, ...]

    @property
    def passing(self) -> DomainError | None:
        """Why a text has no vector that may well get one later; None where there is none such."""
        errors = (i.error for i in self.items if i.error is not None)
        return next((e for e in errors if e.retryable), None)


@dataclass(frozen=True)
class Reranked:
    """Scores by index of the documents given. `complete` False: some have none."""

    model_id: str
    scores: dict[int, tuple[float, float]]
    complete: bool
    unhealthy: bool


class Embedder(Protocol):
    """What the retriever asks of the embedding service. Failures are DomainErrors."""

    async def models(self) -> Sequence[ModelInfo]:
        """The served models."""

    async def documents(self, model_id: str, texts: Sequence[str]) -> Batch:
        """Vectors of passages, however many, within the model's limits."""

    async def query(self, model_id: str, text: str, *, tokens: bool) -> Batch:
        """The vector of a question, with its token vectors on request."""

    async def rerank(
        self, model_id: str, query: str, documents: Sequence[str], budget_s: float
    ) -> Reranked:
        """Scores of documents for a question, as many as the budget allows."""


async def served(embedder: Embedder) -> frozenset[str] | None:
    """Ids of the served models, None while the service does not say."""
    try:
        return frozenset(m.model_id for m in await embedder.models())
    except DomainError as error:
        logs.get(__name__).warning("models_unknown", reason=error.reason)
        return None


class GrpcEmbedder:
    """The embedder behind a channel. Keeps the list of models for half a minute."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = (
            embedder_pb2_grpc.EmbedderServiceStub(channel)
        )
        self._models: tuple[ModelInfo, ...] = ()
        self._models_until = 0.0

    async def models(self) -> Sequence[ModelInfo]:
        """The served models; the last known ones while the service is away."""
        if time.monotonic() >= self._models_until:
            try:
                response = await self._stub.ListModels(embedder_pb2.ListModelsRequest())
            except DomainError:
                if self._models:
                    return self._models
                raise
            self._models = tuple(_model(m) for m in response.models)
            self._models_until = time.monotonic() + _MODELS_TTL_S
        return self._models

    async def documents(self, model_id: str, texts: Sequence[str]) -> Batch:
        """Vectors of passages: calls of a size the model takes, a few at a time."""
        info = next((m for m in await self.models() if m.model_id == model_id), None)
        limit = min(_BATCH, info.max_texts) if info and info.max_texts else _BATCH
        gate = asyncio.Semaphore(_PARALLEL)
        tokens = bool(info and info.codec)

        async def one(batch: Sequence[str]) -> embedder_pb2.EmbedResponse:
            async with gate:
                return await self._embed(model_id, batch, embedder_pb2.INPUT_TYPE_DOCUMENT, tokens)

        calls = [asyncio.create_task(one(b)) for b in _batches(texts, limit)]
        try:
            responses = await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()
        batch = _merged(model_id, responses)
        # A passage's token vectors are kept at two bits a number; a question's stay as they are.
        items = tuple(
            replace(i, tokens=late.stored(i.tokens)) if i.tokens is not None else i
            for i in batch.items
        )
        return replace(batch, items=items)

    async def query(self, model_id: str, text: str, *, tokens: bool) -> Batch:
        """The vector of a question."""
        info = next((m for m in await self.models() if m.model_id == model_id), None)
        wanted = tokens and bool(info and info.codec)
        response = await self._embed(model_id, [text], embedder_pb2.INPUT_TYPE_QUERY, wanted)
        return _merged(model_id, [response])

    async def rerank(
        self, model_id: str, query: str, documents: Sequence[str], budget_s: float
    ) -> Reranked:
        """Scores of documents; a call that takes longer than the budget is cut by the service."""
        budget = Duration()
        budget.FromMilliseconds(max(1, int(budget_s * 1000)))
        request = embedder_pb2.RerankRequest(
            model=model_id,
            query=query,
            documents=[d[:_MAX_RERANK_CHARS] for d in documents],
            budget=embedder_pb2.RerankBudget(max_time=budget),
        )
        # The service keeps to the budget; the slack only covers a service that hangs.
        response = await self._stub.Rerank(request, timeout=budget_s + 0.5)
        return Reranked(
            model_id=response.model,
            scores={r.index: (r.score, r.raw_score) for r in response.results},
            complete=response.completeness == embedder_pb2.COMPLETENESS_COMPLETE,
            unhealthy=any(
                d.kind == common_pb2.DEGRADATION_KIND_MODEL_UNHEALTHY for d in response.degradations
            ),
        )

    async def _embed(
        self,
        model_id: str,
        texts: Sequence[str],
        input_type: embedder_pb2.InputType.ValueType,
        tokens: bool,
    ) -> embedder_pb2.EmbedResponse:
        kinds = [embedder_pb2.VECTOR_KIND_DENSE]
        if tokens:
            kinds.append(embedder_pb2.VECTOR_KIND_MULTI_VECTOR)
        return await self._stub.Embed(
            embedder_pb2.EmbedRequest(
                model=model_id,
                texts=texts,
                input_type=input_type,
                kinds=kinds,
                multi_vector_encoding=embedder_pb2.MULTI_VECTOR_ENCODING_COMPRESSED
                if tokens
                else embedder_pb2.MULTI_VECTOR_ENCODING_UNSPECIFIED,
            ),
            timeout=_CALL_S,
        )


def _batches(texts: Sequence[str], limit: int) -> list[list[str]]:
    """Runs of at most `limit` texts and about `_BATCH_CHARS` characters."""
    out: list[list[str]] = []
    size = 0
    for text in texts:
        if not out or len(out[-1]) >= limit or size + len(text) > _BATCH_CHARS:
            out.append([])
            size = 0
        out[-1].append(text)
        size += len(text)
    return out


def _model(message: embedder_pb2.Model) -> ModelInfo:
    return ModelInfo(
        model_id=message.id,
        revision=message.revision,
        dimensions=message.dimensions,
        max_texts=message.max_texts,
        codec=message.multi_vector_codec,
        default_embedder=message.default_embedder,
        can_rerank=message.can_rerank,
        default_reranker=message.default_reranker,
        unrelated=message.calibration.unrelated,
        relevant=message.calibration.relevant,
        exact=message.calibration.exact,
    )


def _merged(model_id: str, responses: Sequence[embedder_pb2.EmbedResponse]) -> Batch:
    items = tuple(_embedded(i) for i in itertools.chain(*(r.items for r in responses)))
    last = responses[-1] if responses else embedder_pb2.EmbedResponse(model=model_id)
    return Batch(last.model, last.revision, last.dimensions, items)


def _embedded(item: embedder_pb2.EmbedItem) -> Embedded:
    if item.HasField("error"):
        return Embedded(None, error=status.from_item(item.error))
    if not item.HasField("dense"):
        return Embedded(None, error=DomainError("MODEL_FAILED"))
    vector = np.asarray(item.dense.values, np.float32)
    length = float(np.linalg.norm(vector))
    # Nothing that cannot be compared is ever stored, whatever a backend returns.
    if not np.isfinite(length) or length <= 0.0:
        return Embedded(None, error=DomainError("MODEL_FAILED"))
    tokens = None
    if item.HasField("multi_vector") and item.multi_vector.codec:
        many = item.multi_vector
        scales = np.asarray(many.scales, "<f4").tobytes()
        tokens = TokenVectors(many.codec, many.dimensions, many.values, scales)
    # Of length 1 by contract; only a service that breaks it costs another pass.
    return Embedded(vector if abs(length - 1.0) < _ROUNDING else vector / length, tokens)
