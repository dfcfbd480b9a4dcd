"""Values of the retriever's domain. No gRPC, no SQL."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.common.validate import Json
from services.retriever.chunking import Chunk
from services.retriever.reading.blocks import Format
from services.search.calibration import Calibration

MAX_DIMENSIONS: Final = 4_000
"""What an HNSW index of half-precision vectors can hold."""

Vector = NDArray[np.float32]
Metadata = Mapping[str, Json]


@dataclass(frozen=True)
class Space:
    """A collection's vectors of one model. `state`: "active", "building" or "ready". `index_tried`:
    vectors it had when an HNSW index failed its recall check, 0 if none did."""

    model_id: str
    model_revision: str
    dimensions: int
    state: str
    vectors: int
    index_name: str | None
    ef_search: int | None
    index_tried: int = 0

    def made_by(self, revision: str, dimensions: int) -> bool:
        """Whether vectors of that revision can be compared with those of the space; one that is not
        known, on either side, is taken for the same."""
        if not self.dimensions or not self.vectors:
            return True
        unknown = not revision or not self.model_revision
        return dimensions == self.dimensions and (unknown or revision == self.model_revision)

    def wants_index(self, promote_at: int) -> bool:
        """Whether an HNSW index is to be built: large enough, not there, not just tried."""
        return (
            not self.index_name
            and self.dimensions <= MAX_DIMENSIONS
            and self.vectors >= max(promote_at, 2 * self.index_tried)
        )


@dataclass(frozen=True)
class Collection:
    """A collection with its statistics. `item_length`: sum of the items' lengths in tokens."""

    collection_id: str
    display_name: str
    description: str
    default_recipe: str
    model_id: str
    previous_model_id: str | None
    tokenizer: str
    version: int
    document_count: int
    chunk_count: int
    item_count: int
    item_length: int
    etag: str
    create_time: datetime
    update_time: datetime
    spaces: tuple[Space, ...] = ()

    @property
    def active(self) -> Space | None:
        """The space that searches use."""
        return next((s for s in self.spaces if s.state == "active"), None)

    def space(self, model_id: str) -> Space | None:
        """The space of that model, if there is one."""
        return next((s for s in self.spaces if s.model_id == model_id), None)

    def writing(self, served: Container[str] | None) -> tuple[str, ...]:
        """Models whose vectors new documents get: that of the active space, and of every other one
        that may become active, as long as its model is among the `served` (None: not known)."""
        return tuple(
            s.model_id
            for s in self.spaces
            if s.state == "active" or served is None or s.model_id in served
        )


@dataclass(frozen=True)
class Document:
    """A document without its text. `state`: "pending", "ready" or "failed"."""

    collection_id: str
    document_id: str
    title: str
    format: int
    uri: str
    metadata: Metadata
    state: str
    error_reason: str | None
    error_message: str | None
    content_hash: bytes
    text_chars: int
    chunk_count: int
    pending_vectors: int
    revision: int
    changes: Sequence[Mapping[str, object]]
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True)
class Upload:
    """A document as sent, waiting to be read. Exactly one of `text` and `data` is set."""

    position: int
    document_id: str
    title: str
    format: int
    uri: str
    metadata: Metadata
    changes: Sequence[Mapping[str, object]]
    content_hash: bytes
    text: str | None
    data: bytes | None

    @property
    def given_format(self) -> Format | None:
        """The format the client named, None when it is to be found out."""
        return Format(self.format) if self.format else None


@dataclass(frozen=True)
class StoredChunk:
    """A chunk as stored: where it stands and what it says."""

    document_id: str
    ordinal: int
    chunk_id: str
    item: int
    kind: int
    section: tuple[str, ...]
    text: str
    header: str
    start_char: int
    end_char: int
    page: int


@dataclass(frozen=True)
class IndexedText:
    """One distinct text to be indexed. `terms`: term -> frequency; `length`: tokens in all."""

    content_hash: bytes
    passage_hash: bytes
    text: str
    terms: Mapping[str, int]
    length: int


@dataclass(frozen=True)
class ReadDocument:
    """An upload after reading: what will replace the document."""

    upload: Upload
    format: Format
    title: str
    text: str
    changes: Sequence[Mapping[str, object]]
    chunks: tuple[Chunk, ...]
    hashes: tuple[bytes, ...]
    """The content hash of each chunk's indexed text, in order."""


@dataclass(frozen=True)
class ModelVectors:
    """Vectors one model made: content hash -> vector. `tokens`: compressed token vectors."""

    model_id: str
    revision: str = ""
    dimensions: int = 0
    vectors: Mapping[bytes, Vector] = field(default_factory=dict)
    tokens: Mapping[bytes, TokenVectors] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenVectors:
    """A text's compressed token vectors: int8 rows (count x dimensions) and a scale (float32) for
    each, or, without scales, rows of two bits a number (`services.search.late`)."""

    codec: str
    dimensions: int
    entries: bytes
    scales: bytes


@dataclass(frozen=True)
class Condition:
    """One comparison of a metadata filter. `op`: eq, ne, lt, le, gt, ge, in, exists, not_exists.

    `kind` names the typed column of the values: text, number, bool or time ("" without values).
    """

    key: str
    op: str
    kind: str = ""
    values: tuple[object, ...] = ()


@dataclass(frozen=True)
class Scope:
    """Where to search: a collection, or the part of it that documents and conditions name."""

    collection_id: str
    document_ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def whole(self) -> bool:
        """True when nothing narrows the collection."""
        return not self.document_ids and not self.conditions


@dataclass(frozen=True)
class InForce:
    """A calibration and where it comes from. `fitted` False: general anchors of no model."""

    calibration: Calibration
    fitted: bool
    own: bool = False
    pairs: int = 0
    update_time: datetime | None = None

    def onto(self, other: InForce, score: float) -> float:
        """An inner product of this model on the scale of another one."""
        mine, theirs = self.calibration, other.calibration
        if mine == theirs:
            return score
        share = (score - mine.dense_low) / (mine.dense_high - mine.dense_low)
        return theirs.dense_low + share * (theirs.dense_high - theirs.dense_low)
