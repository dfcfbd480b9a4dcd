"""What a search shows of its candidates and hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.db import Connection
from services.retriever.domain import Metadata, Scope, StoredChunk
from services.retriever.store import filters
from services.retriever.store.items import CHUNK_COLUMNS, PlacedText, chunk_of
from services.retriever.store.sqltools import TENANT, rows


@dataclass(frozen=True)
class Candidate:
    """An item by one of its places in the scope."""

    chunk: StoredChunk
    passage_hash: bytes


@dataclass(frozen=True)
class Place:
    """A place of an item, with what its document says of itself.

    `places`: in how many the scope holds the item. `item_key`: the item among those of all scopes.
    """

    item: int
    collection_id: str
    document_id: str
    chunk_id: str
    title: str
    uri: str
    metadata: Metadata
    places: int
    item_key: str = ""


async def items_in(conn: Connection, scope: Scope) -> list[int]:
    """Numbers of the items that stand in the scope's documents."""
    where, params = filters.documents(scope, "c")
    found = await rows(
        conn,
        f"""SELECT DISTINCT c.item FROM retriever.chunks AS c
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s
              {"AND " + where if where else ""}""",
        (scope.collection_id, *params),
    )
    return [row["item"] for row in found]


async def candidates(conn: Connection, scope: Scope, items: Sequence[int]) -> list[Candidate]:
    """The items that still stand in the scope, each by its first place."""
    where, params = filters.documents(scope, "c")
    found = await rows(
        conn,
        f"""SELECT DISTINCT ON (c.item) {CHUNK_COLUMNS},
                (SELECT i.passage_hash FROM retriever.items AS i
                 WHERE i.tenant_id = {TENANT} AND i.collection_id = c.collection_id
                   AND i.item = c.item) AS passage_hash
            FROM retriever.chunks AS c
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s AND c.item = ANY(%s)
              {"AND " + where if where else ""}
            ORDER BY c.item, c.document_id, c.ordinal""",
        (scope.collection_id, list(items), *params),
    )
    return [Candidate(chunk_of(row), bytes(row["passage_hash"])) for row in found]


async def places(
    conn: Connection, scope: Scope, items: Sequence[int], per_item: int
) -> list[Place]:
    """Up to `per_item` places of each item within the scope, in order of document."""
    where, params = filters.documents(scope, "c")
    found = await rows(
        conn,
        f"""SELECT p.item, p.document_id, p.chunk_id, p.places, d.title, d.uri, d.metadata
            FROM (SELECT c.item, c.document_id, c.chunk_id,
                         row_number() OVER (PARTITION BY c.item
                                            ORDER BY c.document_id, c.ordinal) AS place,
                         count(*) OVER (PARTITION BY c.item) AS places
                  FROM retriever.chunks AS c
                  WHERE c.tenant_id = {TENANT} AND c.collection_id = %s AND c.item = ANY(%s)
                    {"AND " + where if where else ""}) AS p
            JOIN retriever.documents AS d ON d.tenant_id = {TENANT}
             AND d.collection_id = %s AND d.document_id = p.document_id
            WHERE p.place <= %s ORDER BY p.item, p.place""",
        (scope.collection_id, list(items), *params, scope.collection_id, per_item),
    )
    return [
        Place(
            item=row["item"],
            collection_id=scope.collection_id,
            document_id=row["document_id"],
            chunk_id=str(row["chunk_id"]),
            title=row["title"],
            uri=row["uri"],
            metadata=row["metadata"],
            places=row["places"],
        )
        for row in found
    ]


async def passage_texts(conn: Connection, scope: Scope) -> list[PlacedText]:
    """Items of a scope, each by its first place there."""
    where, params = filters.documents(scope, "c")
    found = await rows(
        conn,
        f"""SELECT DISTINCT ON (c.item) c.item, d.title, c.document_id, c.text, c.section
            FROM retriever.chunks AS c
            JOIN retriever.documents AS d ON d.tenant_id = {TENANT}
             AND d.collection_id = c.collection_id AND d.document_id = c.document_id
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s
              {"AND " + where if where else ""}
            ORDER BY c.item, c.document_id, c.ordinal""",
        (scope.collection_id, *params),
    )
    return [PlacedText(**row) for row in found]
