"""Between the contract's messages and the embedder's values."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2
from services.common import status
from services.embedder import compression
from services.embedder.front import Done
from services.embedder.model import Float32, InputType, Kind, ModelInfo, Vectors
from services.embedder.worker import Failure
from services.search import late

INPUT_TYPES = MappingProxyType(
    {
        embedder_pb2.INPUT_TYPE_QUERY: InputType.QUERY,
        embedder_pb2.INPUT_TYPE_DOCUMENT: InputType.DOCUMENT,
    }
)
KINDS = MappingProxyType(
    {
        embedder_pb2.VECTOR_KIND_DENSE: Kind.DENSE,
        embedder_pb2.VECTOR_KIND_SPARSE: Kind.SPARSE,
        embedder_pb2.VECTOR_KIND_MULTI_VECTOR: Kind.MULTI_VECTOR,
    }
)
_KIND_VALUES = {kind: value for value, kind in KINDS.items()}
_MAX_SPARSE = 4_096
_COMPRESSED = embedder_pb2.MULTI_VECTOR_ENCODING_COMPRESSED
_MESSAGES = MappingProxyType(
    {
        "EMPTY_TEXT": "Nothing is left of the text after sanitising.",
        "MODEL_FAILED": "The model failed on this text.",
        "MODEL_UNAVAILABLE": "The model is not available now.",
        "DEADLINE_EXCEEDED": "The deadline passed before this text was reached.",
        "PROVIDER_REFUSED": "The provider refused this text.",
    }
)


def item_error(failure: Failure) -> common_pb2.ItemError:
    """The public form of a failure."""
    message = _MESSAGES.get(failure.reason) or failure.message
    return status.item_error(failure.reason, message)


def embed_item(
    done: Done,
    kinds: frozenset[Kind],
    dimensions: int,
    encoding: embedder_pb2.MultiVectorEncoding.ValueType,
    codec: late.TokenCodec | None,
) -> embedder_pb2.EmbedItem:
    """One item of an EmbedResponse; dense vectors are cut to `dimensions` and normalised again."""
    if not isinstance(done.outcome, Vectors):
        failure = done.outcome if isinstance(done.outcome, Failure) else Failure("MODEL_FAILED")
        return embedder_pb2.EmbedItem(error=item_error(failure))
    vectors = done.outcome
    item = embedder_pb2.EmbedItem(
        token_count=done.tokens, truncated=done.truncated, cached=done.cached
    )
    if Kind.DENSE in kinds and vectors.dense is not None:
        # A list is assigned ten times faster than an array.
        item.dense.values.extend(shortened(vectors.dense, dimensions).tolist())
    if Kind.SPARSE in kinds and vectors.sparse is not None:
        indices, weights = vectors.sparse
        item.sparse.indices.extend(indices[:_MAX_SPARSE].tolist())
        item.sparse.values.extend(weights[:_MAX_SPARSE].tolist())
    if Kind.MULTI_VECTOR in kinds and vectors.token_vectors is not None:
        if encoding == _COMPRESSED and codec is not None:
            item.multi_vector.CopyFrom(_compressed(vectors.token_vectors, codec))
        else:
            item.multi_vector.CopyFrom(_half_precision(vectors.token_vectors))
    return item


def shortened(vector: Float32, dimensions: int) -> Float32:
    """The first `dimensions` numbers with L2 norm 1 (Matryoshka, Kusupati et al. 2022)."""
    if len(vector) == dimensions:
        return vector
    head = vector[:dimensions]
    unit: Float32 = head / max(float(np.linalg.norm(head)), 1e-12)
    return unit


def model(
    info: ModelInfo, *, default_embedder: bool, default_reranker: bool, ready: bool, max_texts: int
) -> embedder_pb2.Model:
    """A model as ListModels shows it."""
    anchors = info.calibration
    return embedder_pb2.Model(
        id=info.id,
        revision=info.revision,
        backend=info.backend,
        kinds=sorted(_KIND_VALUES[kind] for kind in info.kinds),
        dimensions=info.dimensions,
        supported_dimensions=info.supported_dimensions,
        max_tokens=info.max_tokens,
        max_chars=info.max_chars,
        max_texts=max_texts,
        can_rerank=info.can_rerank,
        default_embedder=default_embedder,
        default_reranker=default_reranker,
        ready=ready,
        calibration=embedder_pb2.Calibration(
            unrelated=anchors.unrelated, relevant=anchors.relevant, exact=anchors.exact
        ),
        device=info.device,
        dtype=info.dtype,
        multi_vector_codec=info.multi_vector_codec,
        multi_vector_dimensions=info.multi_vector_dimensions,
        multi_vector_max_vectors=info.multi_vector_max_vectors,
    )


def _half_precision(rows: Float32) -> embedder_pb2.MultiVector:
    return embedder_pb2.MultiVector(
        count=rows.shape[0],
        dimensions=rows.shape[1],
        encoding=embedder_pb2.MULTI_VECTOR_ENCODING_FLOAT16,
        values=rows.astype("<f2").tobytes(),
    )


def _compressed(rows: Float32, codec: late.TokenCodec) -> embedder_pb2.MultiVector:
    packed = compression.compress(codec, rows)
    return embedder_pb2.MultiVector(
        count=packed.values.shape[0],
        dimensions=packed.values.shape[1],
        encoding=_COMPRESSED,
        values=packed.values.tobytes(),
        scales=packed.scales.tolist(),
        codec=codec.name,
    )
