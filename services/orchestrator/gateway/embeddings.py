"""`POST /v1/embeddings`, `POST /v1/rerank` and `GET /v1/models`, over the embedder."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nianlun.embedder.v1 import embedder_pb2
from services.common.status import reason_name
from services.orchestrator.gateway.backends import Backends, calling
from services.orchestrator.gateway.bodies import read_json
from services.orchestrator.gateway.errors import HttpError, bad_request

_INPUT_TYPES = {
    "query": embedder_pb2.INPUT_TYPE_QUERY,
    "search_query": embedder_pb2.INPUT_TYPE_QUERY,
    "document": embedder_pb2.INPUT_TYPE_DOCUMENT,
    "search_document": embedder_pb2.INPUT_TYPE_DOCUMENT,
}
_DEFAULT_NAMES = frozenset({"", "nianlun", "default"})


class EmbedderEndpoints:
    """OpenAI-compatible embedding, Cohere- and Jina-like reranking, and the list of models."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def embeddings(self, request: Request) -> Response:
        """Vectors of one or more texts, as floats or base64 of little-endian float32.

        A text over the model's limit is refused, as OpenAI refuses it, unless `truncate` asks for
        the vector of its beginning; `truncated` then marks it.
        """
        body = await read_json(request)
        texts = _texts(body)
        encoding = body.get("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise bad_request("encoding_format must be float or base64", "encoding_format")
        kind = body.get("input_type") or "document"
        if not isinstance(kind, str) or kind not in _INPUT_TYPES:
            raise bad_request("input_type must be query or document", "input_type")
        asked = embedder_pb2.EmbedRequest(
            model=_model(body),
            texts=texts,
            input_type=_INPUT_TYPES[kind],
            kinds=[embedder_pb2.VECTOR_KIND_DENSE],
            truncate=_truncate(body),
        )
        if body.get("dimensions") is not None:
            asked.dimensions = _integer(body, "dimensions", 1, 4_096)
        with calling(request, self._backends.timeout_s):
            answer = await self._backends.embedder.Embed(asked)
        data = [_embedding(index, item, encoding) for index, item in enumerate(answer.items)]
        usage = {"prompt_tokens": answer.token_count, "total_tokens": answer.token_count}
        return JSONResponse({"object": "list", "data": data, "model": answer.model, "usage": usage})

    async def rerank(self, request: Request) -> Response:
        """Documents by relevance to a query, best first."""
        body = await read_json(request)
        query = body.get("query")
        if not isinstance(query, str) or not query.strip():
            raise bad_request("query must be a non-empty string", "query")
        given = body.get("documents")
        if not isinstance(given, list):
            raise bad_request("documents must be an array", "documents")
        documents = [_document(index, one) for index, one in enumerate(given)]
        asked = embedder_pb2.RerankRequest(model=_model(body), query=query, documents=documents)
        if body.get("top_n") is not None:
            asked.top_n = _integer(body, "top_n", 1, 100_000)
        with calling(request, self._backends.timeout_s):
            answer = await self._backends.embedder.Rerank(asked)
        wanted = bool(body.get("return_documents"))
        results = [
            {
                "index": one.index,
                "relevance_score": one.score,
                **({"document": {"text": documents[one.index]}} if wanted else {}),
            }
            for one in answer.results
        ]
        complete = answer.completeness == embedder_pb2.COMPLETENESS_COMPLETE
        return JSONResponse(
            {"object": "list", "model": answer.model, "results": results, "complete": complete}
        )

    async def models(self, request: Request) -> Response:
        """The chat model of this service and the embedder's models."""
        return JSONResponse({"object": "list", "data": await self._models(request)})

    async def model(self, request: Request) -> Response:
        """One model; 404 where there is none of that name."""
        wanted = request.path_params["model"]
        for one in await self._models(request):
            if one["id"] == wanted:
                return JSONResponse(one)
        raise HttpError(404, f"The model {wanted!r} does not exist", code="model_not_found")

    async def _models(self, request: Request) -> list[dict[str, Any]]:
        with calling(request, self._backends.timeout_s):
            answer = await self._backends.embedder.ListModels(embedder_pb2.ListModelsRequest())
        names = ["nianlun", *(model.id for model in answer.models)]
        return [
            {"id": name, "object": "model", "created": 0, "owned_by": "nianlun"} for name in names
        ]


def _texts(body: Mapping[str, Any]) -> list[str]:
    given = body.get("input")
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise bad_request("input must be a string or a non-empty array of strings", "input")
    if not all(isinstance(one, str) for one in given):
        raise bad_request("token arrays are not supported: send text", "input", "unsupported_value")
    return given


def _embedding(index: int, item: embedder_pb2.EmbedItem, encoding: str) -> dict[str, Any]:
    if item.HasField("error"):
        reason = reason_name(item.error.reason).lower()
        raise bad_request(f"input[{index}]: {item.error.message}", "input", reason)
    values = item.dense.values
    vector: str | list[float] = list(values)
    if encoding == "base64":
        vector = base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()
    cut = {"truncated": True} if item.truncated else {}
    return {"object": "embedding", "index": index, "embedding": vector, **cut}


def _truncate(body: Mapping[str, Any]) -> embedder_pb2.TruncatePolicy.ValueType:
    """True or false, or END or NONE as other providers call them; nothing is false."""
    given = body.get("truncate")
    if given is None or given is False or given in ("NONE", "none"):
        return embedder_pb2.TRUNCATE_POLICY_NONE
    if given is True or given in ("END", "end"):
        return embedder_pb2.TRUNCATE_POLICY_END
    raise bad_request("truncate must be true, false, END or NONE", "truncate")


def _document(index: int, given: Any) -> str:
    text = given.get("text") if isinstance(given, Mapping) else given
    if not isinstance(text, str):
        raise bad_request(f"documents[{index}] must be a string", "documents")
    return text


def _model(body: Mapping[str, Any]) -> str:
    name = body.get("model") or ""
    if not isinstance(name, str):
        raise bad_request("model must be a string", "model")
    return "" if name in _DEFAULT_NAMES else name


def _integer(body: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_request(f"{name} must be an integer from {low} to {high}", name)
    return value
