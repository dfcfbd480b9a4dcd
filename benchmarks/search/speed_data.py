"""Synthetic collections of any size, written straight into the retriever's tables by their owner.

Words follow Zipf's law over a vocabulary of made-up words and Chinese bigrams. Vectors lie as those
of the default model do over the labelled sets' 11,875 documents: a mean of length 0.89, variances
that fall as a power of their rank, clusters; at that size the local intrinsic dimension is 26
(theirs: 22) and the nearest and twentieth neighbour are at a distance of 0.36 and 0.41 (0.34 and
0.42). Noise of equal size in all directions has far more dimensions than text, and neighbours that
no index can tell apart. Nothing here is timed: the retriever's own ingestion is measured apart.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from services.search import TOK_VERSION, tokenize

DIMENSIONS = 384
MODEL = "bench"
WORDS_PER_CHUNK = 60
CHUNKS_PER_DOCUMENT = 20
_VOCABULARY = 50_000
_CLUSTERS = 500
_MEAN = 0.89
_DECAY = 1.25
_WITHIN = 0.6
"""Share of the variance that is within clusters."""
_SEGMENTS = 6
_BATCH = 50_000
_HAN = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动"
    "同工也能下过子说产种面而方后多定行学法所民得经"
)


@lru_cache(maxsize=1)
def vocabulary(size: int = _VOCABULARY) -> tuple[str, ...]:
    """Distinct words, a fifth of them Chinese; each is one term of the tokenizer."""
    letters = "ba co du fe gi ho ku lo mi no pu ra so tu vo zi"
    words: dict[str, None] = {}
    number = 0
    while len(words) < size:
        if number % 5 == 0:
            word = _HAN[number // 5 % len(_HAN)] + _HAN[number // 5 // len(_HAN) % len(_HAN)]
        else:
            word = "".join(letters[3 * ((number >> (4 * i)) % 16) :][:2] for i in range(5)) + "x"
        number += 1
        if len(tokenize(word)) == 1:
            words[word] = None
        elif number > 50 * size:
            break
    return tuple(words)


@dataclass(frozen=True)
class Corpus:
    """N chunks: `words` (n, 60) indexes into `names`; `vectors` (n, 384) float16, normalised."""

    names: tuple[str, ...]
    words: NDArray[np.int32]
    vectors: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.words)

    def text(self, row: int) -> str:
        """The chunk's text."""
        return " ".join(self.names[i] for i in self.words[row])

    def part(self, first: int, last: int) -> Corpus:
        """Rows first..last (exclusive)."""
        return Corpus(self.names, self.words[first:last], self.vectors[first:last])


@dataclass(frozen=True)
class Question:
    """A query near one row: words of it and a vector beside its own."""

    text: str
    vector: NDArray[np.float32] = field(repr=False)


def corpus(size: int, seed: int = 1) -> Corpus:
    """A corpus of that many chunks."""
    rng = np.random.default_rng(seed)
    names = vocabulary()
    weights = 1.0 / np.arange(3, len(names) + 3) ** 1.05
    words = rng.choice(len(names), size=(size, WORDS_PER_CHUNK), p=weights / weights.sum())
    spread = _spread()
    centres = rng.standard_normal((_CLUSTERS, DIMENSIONS), np.float32) * spread
    vectors = np.empty((size, DIMENSIONS), np.float16)
    for first in range(0, size, _BATCH):
        count = min(_BATCH, size - first)
        own = rng.standard_normal((count, DIMENSIONS), np.float32) * spread
        of_cluster = centres[rng.integers(_CLUSTERS, size=count)]
        rows = np.sqrt(1 - _WITHIN) * of_cluster + np.sqrt(_WITHIN) * own
        rows[:, -1] += _MEAN
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors[first : first + count] = rows.astype(np.float16)
    return Corpus(names, words.astype(np.int32), vectors)


def _spread() -> NDArray[np.float32]:
    """Standard deviation by axis (384,): what the mean leaves of vectors of length 1."""
    variances = np.arange(1, DIMENSIONS + 1) ** -_DECAY
    shares = variances / variances.sum()
    return np.asarray(np.sqrt(shares * (1 - _MEAN**2)), np.float32)


def best(of: Corpus, asked: Sequence[Question], k: int) -> NDArray[np.float32]:
    """Inner products (n, len(asked)) of all rows, and below them the k-th best of each question:
    (n + 1, len(asked))."""
    queries = np.stack([q.vector for q in asked]).T
    parts = [
        of.vectors[first : first + _BATCH].astype(np.float32) @ queries
        for first in range(0, len(of), _BATCH)
    ]
    scores = np.concatenate(parts)
    return np.concatenate([scores, np.partition(scores, -k, axis=0)[-k][None]])


def questions(of: Corpus, count: int, seed: int = 2) -> list[Question]:
    """Queries of six words: four of one chunk, two common ones."""
    rng = np.random.default_rng(seed)
    out = []
    for row in rng.integers(len(of), size=count):
        own = rng.choice(of.words[row], 4, replace=False)
        common = rng.integers(20, 400, size=2)
        vector = of.vectors[row].astype(np.float32) + 0.02 * rng.standard_normal(DIMENSIONS)
        out.append(
            Question(
                " ".join(of.names[i] for i in (*own, *common)),
                (vector / np.linalg.norm(vector)).astype(np.float32),
            )
        )
    return out


def load(dsn: str, tenant_id: str, parts: Mapping[str, Corpus]) -> None:
    """Writes collections as the retriever itself would have left them after merging."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name, of in parts.items():
            with conn.transaction():
                _collection(conn, tenant_id, name, of)
                _copy(conn, "documents", _DOCUMENTS, _documents(tenant_id, name, of))
                _copy(conn, "items", _ITEMS, _items(tenant_id, name, of))
                _copy(conn, "chunks", _CHUNKS, _chunks(tenant_id, name, of))
                _copy_vectors(conn, tenant_id, name, of)
                _segments(conn, tenant_id, name, of)


def analyze(dsn: str) -> None:
    """What autovacuum does after a while in a running system."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for table in ("documents", "items", "chunks", "vectors", "postings"):
            conn.execute(f"VACUUM (ANALYZE) retriever.{table}".encode())


def clear(dsn: str) -> None:
    """Empties the retriever's tables for the next size and drops their HNSW indexes."""
    tables = (
        "collections", "spaces", "documents", "document_metadata", "items", "chunks", "vectors",
        "segments", "postings", "dead_items", "uploads",
    )  # fmt: skip
    names = ", ".join(f"retriever.{t}" for t in tables)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"TRUNCATE {names}".encode())
        found = conn.execute(
            "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'vectors_hnsw_%'"
        ).fetchall()
        for (name,) in found:
            conn.execute(f"DROP INDEX retriever.{name}".encode())


def sizes(dsn: str) -> dict[str, int]:
    """Bytes of each table of the retriever with its indexes and TOAST, and of HNSW indexes apart
    (they are within `vectors` too)."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            """SELECT relname, pg_total_relation_size(oid) FROM pg_class
               WHERE relnamespace = 'retriever'::regnamespace AND relkind = 'r'"""
        ).fetchall()
        hnsw = conn.execute(
            """SELECT coalesce(sum(pg_relation_size(oid)), 0) FROM pg_class
               WHERE relkind = 'i' AND relname LIKE 'vectors_hnsw_%'"""
        ).fetchone()
    return {str(name): int(size) for name, size in rows} | {"hnsw": int(hnsw[0]) if hnsw else 0}


_DOCUMENTS = (
    "tenant_id text, collection_id text, document_id text, title text, state text, "
    "content_hash bytea, text text, chunk_count int4, revision int8"
)
_ITEMS = (
    "tenant_id text, collection_id text, item int8, content_hash bytea, "
    "passage_hash bytea, length int4, places int4"
)
_CHUNKS = (
    "tenant_id text, collection_id text, document_id text, ordinal int4, "
    "chunk_id uuid, item int8, kind int2, section text[], text text, "
    "start_char int8, end_char int8"
)


def _copy(
    conn: psycopg.Connection[Any], table: str, columns: str, rows: Iterator[tuple[Any, ...]]
) -> None:
    pairs = [c.strip().split(" ") for c in columns.split(",")]
    names = ", ".join(name for name, _ in pairs)
    statement = f"COPY retriever.{table} ({names}) FROM STDIN (FORMAT BINARY)"
    with conn.cursor() as cursor, cursor.copy(statement.encode()) as out:
        out.set_types([kind for _, kind in pairs])
        for row in rows:
            out.write_row(row)


def _collection(conn: psycopg.Connection[Any], tenant: str, collection: str, of: Corpus) -> None:
    documents = -(-len(of) // CHUNKS_PER_DOCUMENT)
    conn.execute(
        """INSERT INTO retriever.collections
               (tenant_id, collection_id, default_recipe, model_id, tokenizer, next_item,
                next_segment, document_count, chunk_count, item_count, item_length)
           VALUES (%s, %s, 'knowledge', %s, %s, %s, 100, %s, %s, %s, %s)""",
        (
            tenant, collection, MODEL, TOK_VERSION, len(of) + 1, documents, len(of), len(of),
            len(of) * WORDS_PER_CHUNK,
        ),
    )  # fmt: skip
    conn.execute(
        """INSERT INTO retriever.spaces
               (tenant_id, collection_id, model_id, model_revision, dimensions, state, vectors)
           VALUES (%s, %s, %s, '1', %s, 'active', %s)""",
        (tenant, collection, MODEL, DIMENSIONS, len(of)),
    )


def _documents(tenant: str, collection: str, of: Corpus) -> Iterator[tuple[Any, ...]]:
    for number in range(-(-len(of) // CHUNKS_PER_DOCUMENT)):
        name = f"d{number}"
        yield tenant, collection, name, name, "ready", name.encode(), "", CHUNKS_PER_DOCUMENT, 1


def _items(tenant: str, collection: str, of: Corpus) -> Iterator[tuple[Any, ...]]:
    for row in range(len(of)):
        digest = row.to_bytes(16, "little")
        yield tenant, collection, row + 1, digest, digest, WORDS_PER_CHUNK, 1


def _chunks(tenant: str, collection: str, of: Corpus) -> Iterator[tuple[Any, ...]]:
    for row in range(len(of)):
        document, ordinal = divmod(row, CHUNKS_PER_DOCUMENT)
        text = of.text(row)
        yield (
            tenant, collection, f"d{document}", ordinal, uuid.UUID(int=row + 1), row + 1, 1, [],
            text, 0, len(text),
        )  # fmt: skip


def _copy_vectors(conn: psycopg.Connection[Any], tenant: str, collection: str, of: Corpus) -> None:
    """COPY's binary rows made by numpy: all have one shape, and a million take seconds."""
    constant = [t.encode() for t in (tenant, collection, MODEL)]
    fields: list[tuple[Any, ...]] = [("fields", ">i2")]
    for n, value in enumerate(constant):
        fields += [(f"size{n}", ">i4"), (f"value{n}", f"S{len(value)}")]
    fields += [("item_size", ">i4"), ("item", ">i8"), ("vector_size", ">i4")]
    fields += [("dimensions", ">i2"), ("unused", ">i2"), ("vector", ">f2", (DIMENSIONS,))]
    statement = (
        "COPY retriever.vectors (tenant_id, collection_id, model_id, item, embedding)"
        " FROM STDIN (FORMAT BINARY)"
    )
    with conn.cursor() as cursor, cursor.copy(statement.encode()) as out:
        out.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for first in range(0, len(of), _BATCH):
            count = min(_BATCH, len(of) - first)
            rows = np.zeros(count, np.dtype(fields))
            rows["fields"], rows["item_size"], rows["dimensions"] = 5, 8, DIMENSIONS
            rows["vector_size"] = 4 + 2 * DIMENSIONS
            for n, value in enumerate(constant):
                rows[f"size{n}"], rows[f"value{n}"] = len(value), value
            rows["item"] = np.arange(first + 1, first + count + 1)
            rows["vector"] = of.vectors[first : first + count]
            out.write(rows.tobytes())
        out.write(b"\xff\xff")


def _segments(conn: psycopg.Connection[Any], tenant: str, collection: str, of: Corpus) -> None:
    bounds = np.linspace(0, len(of), _SEGMENTS + 1 if len(of) > 5_000 else 2, dtype=int)
    for segment, (first, last) in enumerate(itertools.pairwise(bounds), 1):
        conn.execute(
            "INSERT INTO retriever.segments VALUES (%s, %s, %s, %s, %s, %s)",
            (tenant, collection, segment, int(first) + 1, int(last), int(last - first)),
        )
        _copy(
            conn,
            "postings",
            "tenant_id text, collection_id text, segment int8, term text, entries bytea",
            _postings(tenant, collection, segment, of, int(first), int(last)),
        )


def _postings(
    tenant: str,
    collection: str,
    segment: int,
    of: Corpus,
    first: int,
    last: int,
) -> Iterator[tuple[Any, ...]]:
    """Rows of one segment in order of term, packed as the retriever packs them."""
    items = np.repeat(np.arange(first + 1, last + 1, dtype=np.int64), WORDS_PER_CHUNK)
    keys = of.words[first:last].reshape(-1).astype(np.int64) * (len(of) + 2) + items
    unique, counts = np.unique(keys, return_counts=True)
    word, item = np.divmod(unique, len(of) + 2)
    present, starts = np.unique(word, return_index=True)
    ends = [*starts[1:].tolist(), len(word)]
    terms = _terms()
    rows = sorted(zip((terms[w] for w in present), starts.tolist(), ends, strict=True))
    for term, begin, end in rows:
        length = np.full(end - begin, WORDS_PER_CHUNK, "<u2")
        yield (
            tenant,
            collection,
            segment,
            term,
            item[begin:end].astype("<u4").tobytes()
            + counts[begin:end].astype("<u2").tobytes()
            + length.tobytes(),
        )


@lru_cache(maxsize=1)
def _terms() -> tuple[str, ...]:
    """The term of each word of the vocabulary."""
    return tuple(tokenize(name)[0] for name in vocabulary())
