"""Operations of the embedder: vectors and reranking."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message as ProtoMessage

from nianlun.embedder.v1 import embedder_pb2 as embedder
from nianlun.operations.core import operation


@operation("embedder", "Embed", embedder.EmbedResponse)
def embed(
    texts: Sequence[str],
    *,
    query: bool = False,
    model: str = "",
    dimensions: int | None = None,
    kinds: Sequence[embedder.VectorKind.ValueType] = (embedder.VECTOR_KIND_DENSE,),
    truncate: embedder.TruncatePolicy.ValueType = embedder.TRUNCATE_POLICY_UNSPECIFIED,
    max_tokens: int | None = None,
    multi_vector_encoding: embedder.MultiVectorEncoding.ValueType = (
        embedder.MULTI_VECTOR_ENCODING_UNSPECIFIED
    ),
) -> ProtoMessage:
    """Vectors of texts, in order; as search queries with ``query``, else as documents.

    A text that cannot be embedded has an ``error`` in its item; the others are served.
    """
    return embedder.EmbedRequest(
        model=model,
        texts=texts,
        input_type=embedder.INPUT_TYPE_QUERY if query else embedder.INPUT_TYPE_DOCUMENT,
        kinds=kinds,
        truncate=truncate,
        max_tokens=max_tokens,
        multi_vector_encoding=multi_vector_encoding,
        dimensions=dimensions,
    )


@operation("embedder", "Rerank", embedder.RerankResponse)
def rerank(
    query: str,
    documents: Sequence[str],
    *,
    top_n: int = 0,
    model: str = "",
    budget: embedder.RerankBudget | None = None,
) -> ProtoMessage:
    """Score documents against a query, best first, in [0, 1]."""
    return embedder.RerankRequest(
        model=model, query=query, documents=documents, top_n=top_n, budget=budget
    )


@operation("embedder", "ListModels", embedder.ListModelsResponse)
def list_models() -> ProtoMessage:
    """The models that are served, and what each can do."""
    return embedder.ListModelsRequest()
