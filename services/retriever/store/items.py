"""Items (distinct indexed texts), the chunks where they stand, and their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pgvector import HalfVector

from services.common.db import Connection
from services.retriever.domain import IndexedText, StoredChunk, TokenVectors, Vector
from services.retriever.store.sqltools import TENANT, Row, one, rows, run

CHUNK_COLUMNS = """c.document_id, c.ordinal, c.chunk_id, c.item, c.kind, c.section, c.text,
    c.header, c.start_char, c.end_char, c.page"""


def chunk_of(row: Row) -> StoredChunk:
    """A row with CHUNK_COLUMNS as a value."""
    return StoredChunk(
        document_id=row["document_id"],
        ordinal=row["ordinal"],
        chunk_id=str(row["chunk_id"]),
        item=row["item"],
        kind=row["kind"],
        section=tuple(row["section"]),
        text=row["text"],
        header=row["header"],
        start_char=row["start_char"],
        end_char=row["end_char"],
        page=row["page"],
    )


@dataclass(frozen=True)
class PlacedText:
    """An item by one of its places: what its indexed text is made of."""

    item: int
    text: str
    section: list[str]
    title: str
    document_id: str


async def known(conn: Connection, collection_id: str, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """Item numbers of the texts that stand in the collection already, by content hash."""
    found = await rows(
        conn,
        f"""SELECT content_hash, item FROM retriever.items
            WHERE tenant_id = {TENANT} AND collection_id = %s AND content_hash = ANY(%s)""",
        (collection_id, list(hashes)),
    )
    return {bytes(row["content_hash"]): row["item"] for row in found}


async def embedded(
    conn: Connection, collection_id: str, model_id: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Which of these texts have a vector of the model already."""
    found = await rows(
        conn,
        f"""SELECT i.content_hash FROM retriever.items AS i
            JOIN retriever.vectors AS v ON v.tenant_id = {TENANT}
             AND v.collection_id = i.collection_id AND v.item = i.item
            WHERE i.tenant_id = {TENANT} AND i.collection_id = %s AND i.content_hash = ANY(%s)
              AND v.model_id = %s""",
        (collection_id, list(hashes), model_id),
    )
    return {bytes(row["content_hash"]) for row in found}


async def insert(
    conn: Connection, collection_id: str, first_item: int, texts: Sequence[IndexedText]
) -> None:
    """Adds items numbered from `first_item` on, without places yet."""
    await run(
        conn,
        f"""INSERT INTO retriever.items
                (tenant_id, collection_id, item, content_hash, passage_hash, length, places)
            SELECT {TENANT}, %s, %s + n.ordinality - 1, n.content_hash, n.passage_hash, n.length, 0
            FROM unnest(%b::bytea[], %b::bytea[], %s::integer[]) WITH ORDINALITY
                AS n (content_hash, passage_hash, length, ordinality)
            RETURNING 1""",
        (
            collection_id,
            first_item,
            [t.content_hash for t in texts],
            [t.passage_hash for t in texts],
            [t.length for t in texts],
        ),
    )


async def insert_chunks(
    conn: Connection, collection_id: str, chunks: Sequence[StoredChunk]
) -> None:
    """Adds chunks and counts their places."""
    if not chunks:
        return
    # Rows as columns of arrays: COPY is not to be had under row-level security. Arrays of arrays
    # must be rectangular, so section paths travel joined; no text holds the separator.
    await run(
        conn,
        f"""INSERT INTO retriever.chunks
                (tenant_id, collection_id, document_id, ordinal, chunk_id, item, kind, section,
                 text, header, start_char, end_char, page)
            SELECT {TENANT}, %s, n.document_id, n.ordinal, n.chunk_id, n.item, n.kind,
                   string_to_array(n.section, chr(31)), n.text, n.header, n.start_char, n.end_char,
                   n.page
            FROM unnest(%s::text[], %s::integer[], %s::uuid[], %s::bigint[], %s::smallint[],
                        %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],
                        %s::integer[])
                AS n (document_id, ordinal, chunk_id, item, kind, section, text, header, start_char,
                      end_char, page)
            RETURNING 1""",
        (
            collection_id,
            [c.document_id for c in chunks],
            [c.ordinal for c in chunks],
            [c.chunk_id for c in chunks],
            [c.item for c in chunks],
            [c.kind for c in chunks],
            ["\x1f".join(c.section) for c in chunks],
            [c.text for c in chunks],
            [c.header for c in chunks],
            [c.start_char for c in chunks],
            [c.end_char for c in chunks],
            [c.page for c in chunks],
        ),
    )
    counts: dict[int, int] = {}
    for c in chunks:
        counts[c.item] = counts.get(c.item, 0) + 1
    await run(
        conn,
        f"""UPDATE retriever.items AS i SET places = i.places + n.places
            FROM unnest(%s::bigint[], %s::integer[]) AS n (item, places)
            WHERE i.tenant_id = {TENANT} AND i.collection_id = %s AND i.item = n.item""",
        (list(counts), list(counts.values()), collection_id),
    )


async def remove_chunks(
    conn: Connection, collection_id: str, document_ids: Sequence[str]
) -> tuple[int, dict[int, int]]:
    """Removes the documents' chunks: (how many, places lost per item). Items stay for now."""
    found = await rows(
        conn,
        f"""WITH gone AS (
                DELETE FROM retriever.chunks
                WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)
                RETURNING item)
            SELECT item, count(*) AS places FROM gone GROUP BY item""",
        (collection_id, list(document_ids)),
    )
    lost = {int(row["item"]): int(row["places"]) for row in found}
    if lost:
        await run(
            conn,
            f"""UPDATE retriever.items AS i SET places = i.places - n.places
                FROM unnest(%s::bigint[], %s::integer[]) AS n (item, places)
                WHERE i.tenant_id = {TENANT} AND i.collection_id = %s AND i.item = n.item""",
            (list(lost), list(lost.values()), collection_id),
        )
    return sum(lost.values()), lost


async def remove_unplaced(
    conn: Connection, collection_id: str, candidates: Sequence[int]
) -> tuple[int, int]:
    """Removes those items that stand nowhere any more, with their vectors: (items, their length).

    Their numbers go to dead_items, since the postings still hold them.
    """
    if not candidates:
        return 0, 0
    found = await rows(
        conn,
        f"""DELETE FROM retriever.items
            WHERE tenant_id = {TENANT} AND collection_id = %s AND item = ANY(%s) AND places <= 0
            RETURNING item, length""",
        (collection_id, list(candidates)),
    )
    if not found:
        return 0, 0
    gone = [row["item"] for row in found]
    await run(
        conn,
        f"""INSERT INTO retriever.dead_items (tenant_id, collection_id, item)
            SELECT {TENANT}, %s, n.item FROM unnest(%s::bigint[]) AS n (item)
            RETURNING 1""",
        (collection_id, gone),
    )
    # Counted and subtracted per space; the models' rows differ while one is being backfilled.
    await run(
        conn,
        f"""WITH gone AS (
                DELETE FROM retriever.vectors
                WHERE tenant_id = {TENANT} AND collection_id = %s AND item = ANY(%s)
                RETURNING model_id),
            counted AS (SELECT model_id, count(*) AS n FROM gone GROUP BY model_id)
            UPDATE retriever.spaces AS s SET vectors = s.vectors - c.n FROM counted AS c
            WHERE s.tenant_id = {TENANT} AND s.collection_id = %s AND s.model_id = c.model_id""",
        (collection_id, gone, collection_id),
    )
    await run(
        conn,
        f"""DELETE FROM retriever.token_vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND item = ANY(%s)""",
        (collection_id, gone),
    )
    return len(gone), sum(row["length"] for row in found)


async def insert_vectors(
    conn: Connection, collection_id: str, model_id: str, vectors: Mapping[int, Vector]
) -> int:
    """Adds vectors of items that exist and lack one; returns how many were added.

    Items are locked, so that none can be removed meanwhile and leave a vector behind.
    """
    if not vectors:
        return 0
    alive = await rows(
        conn,
        f"""SELECT item FROM retriever.items
            WHERE tenant_id = {TENANT} AND collection_id = %s AND item = ANY(%s)
            ORDER BY item FOR KEY SHARE""",
        (collection_id, list(vectors)),
    )
    items = [row["item"] for row in alive]
    return await run(
        conn,
        f"""INSERT INTO retriever.vectors (tenant_id, collection_id, model_id, item, embedding)
            SELECT {TENANT}, %s, %s, n.item, n.embedding
            FROM unnest(%s::bigint[], %b::halfvec[]) AS n (item, embedding)
            ON CONFLICT DO NOTHING""",
        (collection_id, model_id, items, [HalfVector(vectors[i]) for i in items]),
    )


async def insert_token_vectors(
    conn: Connection, collection_id: str, model_id: str, tokens: Mapping[int, TokenVectors]
) -> None:
    """Adds compressed token vectors of items that have a vector of the model."""
    if not tokens:
        return
    await run(
        conn,
        f"""INSERT INTO retriever.token_vectors
                (tenant_id, collection_id, model_id, item, codec, dimensions, entries, scales)
            SELECT {TENANT}, %s, %s, n.item, n.codec, n.dimensions, n.entries, n.scales
            FROM unnest(%s::bigint[], %s::text[], %s::integer[], %b::bytea[], %b::bytea[])
                AS n (item, codec, dimensions, entries, scales)
            JOIN retriever.vectors AS v ON v.tenant_id = {TENANT} AND v.collection_id = %s
             AND v.model_id = %s AND v.item = n.item
            ON CONFLICT DO NOTHING""",
        (
            collection_id,
            model_id,
            list(tokens),
            [t.codec for t in tokens.values()],
            [t.dimensions for t in tokens.values()],
            [t.entries for t in tokens.values()],
            [t.scales for t in tokens.values()],
            collection_id,
            model_id,
        ),
    )


async def token_vectors(
    conn: Connection, collection_id: str, model_id: str, items: Sequence[int]
) -> dict[int, TokenVectors]:
    """Stored token vectors of these items."""
    found = await rows(
        conn,
        f"""SELECT item, codec, dimensions, entries, scales FROM retriever.token_vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND item = ANY(%s)""",
        (collection_id, model_id, list(items)),
    )
    return {
        row["item"]: TokenVectors(
            row["codec"], row["dimensions"], bytes(row["entries"]), bytes(row["scales"])
        )
        for row in found
    }


async def pending(
    conn: Connection, collection_id: str, model_id: str, after: int, limit: int
) -> list[PlacedText]:
    """Items numbered after `after` that lack a vector, each by one of its places, in order."""
    found = await rows(
        conn,
        f"""SELECT i.item, p.text, p.section, d.title, d.document_id FROM retriever.items AS i
            JOIN LATERAL (
                SELECT c.document_id, c.text, c.section FROM retriever.chunks AS c
                WHERE c.tenant_id = {TENANT} AND c.collection_id = i.collection_id
                  AND c.item = i.item LIMIT 1) AS p ON true
            JOIN retriever.documents AS d ON d.tenant_id = {TENANT}
             AND d.collection_id = i.collection_id AND d.document_id = p.document_id
            WHERE i.tenant_id = {TENANT} AND i.collection_id = %s AND i.item > %s
              AND NOT EXISTS (SELECT 1 FROM retriever.vectors AS v
                  WHERE v.tenant_id = {TENANT} AND v.collection_id = i.collection_id
                    AND v.model_id = %s AND v.item = i.item)
            ORDER BY i.item LIMIT %s""",
        (collection_id, after, model_id, limit),
    )
    return [PlacedText(**row) for row in found]


async def count_pending(conn: Connection, collection_id: str, model_id: str) -> int:
    """Items that lack a vector of the model."""
    row = await one(
        conn,
        f"""SELECT count(*) AS n FROM retriever.items AS i
            WHERE i.tenant_id = {TENANT} AND i.collection_id = %s
              AND NOT EXISTS (SELECT 1 FROM retriever.vectors AS v
                  WHERE v.tenant_id = {TENANT} AND v.collection_id = i.collection_id
                    AND v.model_id = %s AND v.item = i.item)""",
        (collection_id, model_id),
    )
    return int(row["n"]) if row else 0


async def vectors_of(
    conn: Connection, collection_id: str, model_id: str, items: Sequence[int]
) -> dict[int, Vector]:
    """Vectors of these items as float32 arrays (d,)."""
    found = await rows(
        conn,
        f"""SELECT item, embedding FROM retriever.vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND item = ANY(%s)""",
        (collection_id, model_id, list(items)),
    )
    return {row["item"]: np.asarray(row["embedding"].to_numpy(), np.float32) for row in found}


async def section_chunks(
    conn: Connection, collection_id: str, document_id: str, first: int, last: int
) -> list[StoredChunk]:
    """Chunks of a document with ordinals first..last, in order."""
    found = await rows(
        conn,
        f"""SELECT {CHUNK_COLUMNS} FROM retriever.chunks AS c
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s AND c.document_id = %s
              AND c.ordinal BETWEEN %s AND %s ORDER BY c.ordinal""",
        (collection_id, document_id, first, last),
    )
    return [chunk_of(row) for row in found]


async def find_chunk(
    conn: Connection, collection_id: str, document_id: str, chunk_id: str
) -> StoredChunk | None:
    """One chunk of a document by its id."""
    row = await one(
        conn,
        f"""SELECT {CHUNK_COLUMNS} FROM retriever.chunks AS c
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s AND c.document_id = %s
              AND c.chunk_id = %s""",
        (collection_id, document_id, chunk_id),
    )
    return chunk_of(row) if row else None


async def sample_texts(
    conn: Connection, collection_id: str, model_id: str, count: int
) -> list[PlacedText]:
    """Some items that have a vector of the model, each by one of its places, spread over the
    numbers."""
    found = await rows(
        conn,
        f"""SELECT DISTINCT ON (c.item) c.item, c.text, c.section, d.title, d.document_id
            FROM retriever.chunks AS c
            JOIN retriever.documents AS d ON d.tenant_id = {TENANT}
             AND d.collection_id = c.collection_id AND d.document_id = c.document_id
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s AND c.item IN (
                SELECT i.item FROM retriever.items AS i
                WHERE i.tenant_id = {TENANT} AND i.collection_id = %s
                  AND EXISTS (SELECT 1 FROM retriever.vectors AS v
                      WHERE v.tenant_id = {TENANT} AND v.collection_id = i.collection_id
                        AND v.model_id = %s AND v.item = i.item)
                ORDER BY i.content_hash LIMIT %s)
            ORDER BY c.item""",
        (collection_id, collection_id, model_id, count),
    )
    return [PlacedText(**row) for row in found]
