"""An embedder that can be switched off and serves models of several dimensions.

A vector is the normalised sum of fixed random directions of the text's tokens: equal words are
near, different ones far, nothing needs a model file. It speaks the contract over a real socket.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2 as e
from nianlun.embedder.v1 import embedder_pb2_grpc
from services.common import status
from services.common.grpc.server import server_options
from services.common.settings import ChassisSettings
from services.search import tokenize

DIMENSIONS = {"small": 384, "large": 1024, "late": 384}
CODEC = "double/v1"
_TOKEN_DIMENSIONS = 32


def vector(text: str, dimensions: int) -> np.ndarray:
    """A unit vector (dimensions,) of a text's tokens."""
    total = np.zeros(dimensions, np.float32)
    for token in tokenize(text) or ["nothing"]:
        seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "little")
        total += np.random.default_rng(seed).standard_normal(dimensions, np.float32)
    return total / np.linalg.norm(total)


def token_vectors(text: str) -> e.MultiVector:
    """A compressed vector for each token."""
    tokens = tokenize(text) or ["nothing"]
    rows = np.stack([vector(t, _TOKEN_DIMENSIONS) for t in tokens])
    scales = np.abs(rows).max(axis=1) / 127
    packed = np.round(rows / scales[:, None]).astype(np.int8)
    return e.MultiVector(
        count=len(tokens),
        dimensions=_TOKEN_DIMENSIONS,
        encoding=e.MULTI_VECTOR_ENCODING_COMPRESSED,
        values=packed.tobytes(),
        scales=scales.tolist(),
        codec=CODEC,
    )


class EmbedderDouble(embedder_pb2_grpc.EmbedderServiceServicer):
    """`down`: every call fails; `texts`: how many documents were embedded; `delay_s`: per call;
    `away`: part of a text -> reason why such texts fail alone, in an answer that is OK;
    `gone`: models that are served no longer; `other_vectors`: as of a model with other weights."""

    def __init__(self) -> None:
        self.down = False
        self.rerank_down = False
        self.rerank_delay_s = 0.0
        self.constant_scores = False
        self.delay_s = 0.0
        self.away: dict[str, str] = {}
        self.revision = "1"
        self.other_vectors = False
        self.gone: set[str] = set()
        self.texts = 0
        self.port = 0

    async def _gate(self, context: Any) -> None:
        if self.down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "switched off")
        await asyncio.sleep(self.delay_s)

    async def Embed(self, request: e.EmbedRequest, context: Any) -> e.EmbedResponse:
        await self._gate(context)
        model = request.model or "small"
        dimensions = DIMENSIONS[model]
        if model in self.gone:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such model")
        if request.input_type == e.INPUT_TYPE_DOCUMENT:
            self.texts += len(request.texts)
        items = [
            e.EmbedItem(dense=e.DenseVector(values=self._vector(t, dimensions)), token_count=1)
            for t in request.texts
        ]
        for n, text in enumerate(request.texts):
            for part, reason in self.away.items():
                if part in text:
                    items[n] = e.EmbedItem(error=status.item_error(reason, "not now"))
        if e.VECTOR_KIND_MULTI_VECTOR in request.kinds:
            for item, text in zip(items, request.texts, strict=True):
                item.multi_vector.CopyFrom(token_vectors(text))
        return e.EmbedResponse(
            items=items, model=model, revision=self.revision, dimensions=dimensions
        )

    def _vector(self, text: str, dimensions: int) -> list[float]:
        made = vector(text, dimensions)
        return (made[::-1] if self.other_vectors else made).tolist()

    async def Rerank(self, request: e.RerankRequest, context: Any) -> e.RerankResponse:
        if self.rerank_down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "switched off")
        scored = list(enumerate(request.documents))
        complete = e.COMPLETENESS_COMPLETE
        if self.rerank_delay_s:
            # As the service does: it keeps to the budget and says how far it came.
            await asyncio.sleep(request.budget.max_time.ToMilliseconds() / 1000)
            scored, complete = [], e.COMPLETENESS_PARTIAL
        asked = set(tokenize(request.query))
        results = []
        for index, text in scored:
            share = len(asked & set(tokenize(text))) / max(len(asked), 1)
            share = 0.5 if self.constant_scores else share
            results.append(e.RerankResult(index=index, score=share, raw_score=share))
        results.sort(key=lambda r: (-r.score, r.index))
        response = e.RerankResponse(
            results=results, completeness=complete, scored=len(results), model="rr", revision="1"
        )
        if self.constant_scores:
            response.degradations.add(kind=common_pb2.DEGRADATION_KIND_MODEL_UNHEALTHY)
        return response

    async def ListModels(self, request: e.ListModelsRequest, context: Any) -> Any:
        await self._gate(context)
        models = [
            e.Model(
                id=name,
                revision=self.revision,
                backend="double",
                kinds=[e.VECTOR_KIND_DENSE],
                multi_vector_codec=CODEC if name == "late" else "",
                dimensions=size,
                max_tokens=512,
                max_texts=16,
                default_embedder=name == "small",
                ready=True,
                calibration=e.Calibration(unrelated=0.1, relevant=0.3, exact=0.9),
            )
            for name, size in DIMENSIONS.items()
            if name not in self.gone
        ]
        models.append(e.Model(id="rr", can_rerank=True, default_reranker=True, ready=True))
        return e.ListModelsResponse(models=models)


@asynccontextmanager
async def embedder_double() -> AsyncIterator[EmbedderDouble]:
    """A running one on a free port, without any key."""
    servicer = EmbedderDouble()
    server = grpc.aio.server(options=server_options(ChassisSettings()))
    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)
