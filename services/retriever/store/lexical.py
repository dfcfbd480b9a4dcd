"""Packed postings: segments of terms, read in one statement so that statistics, dead items and
postings are of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.common.db import Connection
from services.retriever.store.sqltools import TENANT, one, rows, run
from services.search.postings import ENTRY_BYTES

_FETCH: Final = 2_000
_MANY_TERMS: Final = 64
_MOST_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class Snapshot:
    """What a query needs. `postings`: term -> packed lists, one a segment. `unread`: terms too
    common to be read for a long question -> in how many items they stand."""

    documents: int
    total_length: int
    dead: tuple[int, ...]
    postings: dict[str, list[bytes]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """About how many entries the lists have: what scoring costs."""
        return sum(len(p) for parts in self.postings.values() for p in parts) // ENTRY_BYTES


@dataclass(frozen=True)
class Segment:
    """A segment and the range of item numbers that it holds. `items`: how many, `dead` of which are
    gone."""

    segment: int
    first_item: int
    last_item: int
    items: int
    dead: int = 0


async def snapshot(conn: Connection, collection_id: str, terms: Sequence[str]) -> Snapshot:
    """Statistics, dead items and the postings of `terms` in one collection.

    A pasted log has thousands of terms. Of so many the rarest are read, as much as can be scored in
    some 100 ms; the most common ones, which decide least, are only counted.
    """
    unread: dict[str, int] = {}
    if len(terms) > _MANY_TERMS:
        unread = await _too_common(conn, collection_id, terms)
        terms = [t for t in terms if t not in unread]
    query = f"""
        SELECT 0 AS what, c.item_count AS a, c.item_length AS b, NULL::text AS term,
               NULL::bytea AS entries
        FROM retriever.collections AS c
        WHERE c.tenant_id = {TENANT} AND c.collection_id = %(collection)s
        UNION ALL
        SELECT 1, d.item, 0, NULL, NULL FROM retriever.dead_items AS d
        WHERE d.tenant_id = {TENANT} AND d.collection_id = %(collection)s
        UNION ALL
        SELECT 2, p.segment, 0, p.term, p.entries FROM retriever.postings AS p
        WHERE p.tenant_id = {TENANT} AND p.collection_id = %(collection)s
          AND p.segment = ANY(ARRAY(SELECT s.segment FROM retriever.segments AS s
                WHERE s.tenant_id = {TENANT} AND s.collection_id = %(collection)s))
          AND p.term = ANY(%(terms)s)"""
    documents = length = 0
    dead: list[int] = []
    postings: dict[str, list[bytes]] = {}
    # Binary results: posting lists would be twice as long in text form.
    async with conn.cursor(binary=True) as cursor:
        await cursor.execute(query.encode(), {"collection": collection_id, "terms": list(terms)})
        for row in await cursor.fetchall():
            if row["what"] == 2:
                postings.setdefault(row["term"], []).append(row["entries"])
            elif row["what"] == 1:
                dead.append(row["a"])
            else:
                documents, length = row["a"], row["b"]
    return Snapshot(documents, length, tuple(dead), postings, unread)


async def _too_common(conn: Connection, collection_id: str, terms: Sequence[str]) -> dict[str, int]:
    """Those terms that are left when the rarest have used up what may be read: term -> items."""
    # The length of a value that is stored apart is known without reading it.
    found = await rows(
        conn,
        f"""SELECT p.term, sum(octet_length(p.entries))::bigint AS bytes
            FROM retriever.postings AS p
            WHERE p.tenant_id = {TENANT} AND p.collection_id = %s AND p.term = ANY(%s)
              AND p.segment = ANY(ARRAY(SELECT s.segment FROM retriever.segments AS s
                    WHERE s.tenant_id = {TENANT} AND s.collection_id = %s))
            GROUP BY p.term ORDER BY bytes, p.term""",
        (collection_id, list(terms), collection_id),
    )
    out: dict[str, int] = {}
    read = 0
    for row in found:
        read += row["bytes"]
        if read > _MOST_BYTES:
            out[row["term"]] = row["bytes"] // ENTRY_BYTES
    return out


async def write_segment(
    conn: Connection,
    collection_id: str,
    segment: Segment,
    packed: Iterable[tuple[str, bytes]],
) -> None:
    """Adds a segment with its postings."""
    await run(
        conn,
        f"""INSERT INTO retriever.segments
                (tenant_id, collection_id, segment, first_item, last_item, items)
            VALUES ({TENANT}, %s, %s, %s, %s, %s)""",
        (collection_id, segment.segment, segment.first_item, segment.last_item, segment.items),
    )
    await append(conn, collection_id, segment.segment, packed)


async def append(
    conn: Connection, collection_id: str, segment: int, packed: Iterable[tuple[str, bytes]]
) -> None:
    """Adds postings to a segment, terms that it does not hold yet."""
    rows_to_write = list(packed)
    if not rows_to_write:
        return
    await run(
        conn,
        f"""INSERT INTO retriever.postings (tenant_id, collection_id, segment, term, entries)
            SELECT {TENANT}, %s, %s, n.term, n.entries
            FROM unnest(%b::text[], %b::bytea[]) AS n (term, entries)
            RETURNING 1""",
        (
            collection_id,
            segment,
            [term for term, _ in rows_to_write],
            [entries for _, entries in rows_to_write],
        ),
    )


async def segments(conn: Connection, collection_id: str) -> list[Segment]:
    """All segments of a collection, oldest items first."""
    found = await rows(
        conn,
        f"""SELECT s.segment, s.first_item, s.last_item, s.items,
                   (SELECT count(*) FROM retriever.dead_items AS d
                    WHERE d.tenant_id = {TENANT} AND d.collection_id = s.collection_id
                      AND d.item BETWEEN s.first_item AND s.last_item) AS dead
            FROM retriever.segments AS s
            WHERE s.tenant_id = {TENANT} AND s.collection_id = %s ORDER BY s.first_item""",
        (collection_id,),
    )
    return [Segment(**row) for row in found]


async def dead_between(
    conn: Connection, collection_id: str, first_item: int, last_item: int
) -> list[int]:
    """Dead items with numbers first..last."""
    found = await rows(
        conn,
        f"""SELECT item FROM retriever.dead_items
            WHERE tenant_id = {TENANT} AND collection_id = %s AND item BETWEEN %s AND %s""",
        (collection_id, first_item, last_item),
    )
    return [row["item"] for row in found]


async def terms_of(
    conn: Connection, collection_id: str, chosen: Sequence[int]
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The postings of these segments term by term, without holding them all in memory."""
    query = f"""SELECT term, entries FROM retriever.postings
        WHERE tenant_id = {TENANT} AND collection_id = %s AND segment = ANY(%s)
        ORDER BY term, segment"""
    async with conn.cursor("nianlun_merge", binary=True) as cursor:
        cursor.itersize = _FETCH
        await cursor.execute(query.encode(), (collection_id, list(chosen)))
        term: str | None = None
        parts: list[bytes] = []
        async for row in cursor:
            if row["term"] != term:
                if term is not None:
                    yield term, parts
                term, parts = row["term"], []
            parts.append(row["entries"])
        if term is not None:
            yield term, parts


async def drop_segments(conn: Connection, collection_id: str, chosen: Sequence[int]) -> None:
    """Removes segments with their postings."""
    for table in ("postings", "segments"):
        await run(
            conn,
            f"""DELETE FROM retriever.{table}
                WHERE tenant_id = {TENANT} AND collection_id = %s AND segment = ANY(%s)""",
            (collection_id, list(chosen)),
        )


async def drop_dead(conn: Connection, collection_id: str, items: Sequence[int]) -> None:
    """Forgets dead items that stand in no segment any more."""
    await run(
        conn,
        f"""DELETE FROM retriever.dead_items
            WHERE tenant_id = {TENANT} AND collection_id = %s AND item = ANY(%s)""",
        (collection_id, list(items)),
    )


async def lock_merge(conn: Connection, collection_id: str) -> bool:
    """Takes the collection's merge lock for this transaction; False when another merge runs."""
    row = await one(
        conn,
        f"""SELECT pg_try_advisory_xact_lock(hashtextextended(
                'nianlun.merge.' || {TENANT}::text || chr(31) || %s, 0)) AS locked""",
        (collection_id,),
    )
    # A merge of a large segment may take longer than a caller's statement may.
    await run(conn, "SET LOCAL statement_timeout = 0")
    return bool(row and row["locked"])
