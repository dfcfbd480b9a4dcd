"""Collections and their embedding spaces."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from services.common.db import Connection
from services.retriever.domain import Collection, Space
from services.retriever.store.sqltools import TENANT, Row, one, rows, run

_COLUMNS = """c.collection_id, c.display_name, c.description, c.default_recipe, c.model_id,
    c.previous_model_id, c.tokenizer, c.version, c.document_count, c.chunk_count, c.item_count,
    c.item_length, c.etag, c.create_time, c.update_time"""
_SPACE_COLUMNS = """s.model_id AS space_model_id, s.model_revision, s.dimensions, s.state,
    s.vectors, s.index_name, s.ef_search, s.index_tried"""
# A space without a vector is whatever the next vectors are.
_BLANK = "s.dimensions = 0 OR s.vectors = 0"
# Of another model; a revision that is not known is taken for the same, as in Space.made_by.
_OTHER = """s.vectors = 0 AND (s.dimensions <> %s
    OR (s.model_revision <> %s AND s.model_revision <> '' AND %s::text <> ''))"""
_SPACE_ORDER = "s.state <> 'active', s.create_time"


def _space(row: Row) -> Space:
    return Space(
        model_id=row["space_model_id"],
        model_revision=row["model_revision"],
        dimensions=row["dimensions"],
        state=row["state"],
        vectors=row["vectors"],
        index_name=row["index_name"],
        ef_search=row["ef_search"],
        index_tried=row["index_tried"],
    )


def _collection(row: Row, spaces: Sequence[Row]) -> Collection:
    return Collection(
        collection_id=row["collection_id"],
        display_name=row["display_name"],
        description=row["description"],
        default_recipe=row["default_recipe"],
        model_id=row["model_id"],
        previous_model_id=row["previous_model_id"],
        tokenizer=row["tokenizer"],
        version=row["version"],
        document_count=row["document_count"],
        chunk_count=row["chunk_count"],
        item_count=row["item_count"],
        item_length=row["item_length"],
        etag=str(row["etag"]),
        create_time=row["create_time"],
        update_time=row["update_time"],
        spaces=tuple(_space(s) for s in spaces),
    )


async def _spaces_of(conn: Connection, collection_id: str) -> list[Row]:
    return await rows(
        conn,
        f"""SELECT {_SPACE_COLUMNS} FROM retriever.spaces AS s
            WHERE s.tenant_id = {TENANT} AND s.collection_id = %s ORDER BY {_SPACE_ORDER}""",
        (collection_id,),
    )


async def _found(conn: Connection, where: str, params: tuple[object, ...]) -> list[Collection]:
    """Collections with their spaces as of one moment, in order of id; `where` is about `c`."""
    found = await rows(
        conn,
        f"""SELECT {_COLUMNS}, {_SPACE_COLUMNS}
            FROM (SELECT c.* FROM retriever.collections AS c
                  WHERE c.tenant_id = {TENANT} AND {where}) AS c
            LEFT JOIN retriever.spaces AS s ON s.tenant_id = {TENANT}
             AND s.collection_id = c.collection_id
            ORDER BY c.collection_id, {_SPACE_ORDER}""",
        params,
    )
    by_id: dict[str, list[Row]] = {}
    for row in found:
        by_id.setdefault(row["collection_id"], []).append(row)
    return [
        _collection(same[0], [r for r in same if r["space_model_id"] is not None])
        for same in by_id.values()
    ]


async def insert(
    conn: Connection,
    collection_id: str,
    display_name: str,
    description: str,
    default_recipe: str,
    model_id: str,
    tokenizer: str,
) -> bool:
    """Adds an empty collection with its active space; False when the id is taken."""
    added = await run(
        conn,
        f"""INSERT INTO retriever.collections
                (tenant_id, collection_id, display_name, description, default_recipe, model_id,
                 tokenizer)
            VALUES ({TENANT}, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""",
        (collection_id, display_name, description, default_recipe, model_id, tokenizer),
    )
    if added:
        await add_space(conn, collection_id, model_id, "active")
    return bool(added)


async def get(conn: Connection, collection_id: str, *, lock: bool = False) -> Collection | None:
    """One collection; `lock` makes writers of it wait for this transaction's end."""
    if not lock:
        found = await _found(conn, "c.collection_id = %s", (collection_id,))
        return found[0] if found else None
    row = await one(
        conn,
        f"""SELECT {_COLUMNS} FROM retriever.collections AS c
            WHERE c.tenant_id = {TENANT} AND c.collection_id = %s FOR UPDATE""",
        (collection_id,),
    )
    # A statement of its own: it must see what was committed while this one waited for the lock.
    return _collection(row, await _spaces_of(conn, collection_id)) if row else None


async def still(conn: Connection, seen: Collection) -> Collection | None:
    """The collection as it is now, locked as by `get`; None when it is gone, also where another
    one has its id since: that one's items, segments and spaces are numbered anew.

    For whoever read at one time and writes later: none of these tables refers to the collection's
    row in a way that would stop a late writer.
    """
    now = await get(conn, seen.collection_id, lock=True)
    return now if now is not None and now.create_time == seen.create_time else None


async def get_many(conn: Connection, collection_ids: Sequence[str]) -> dict[str, Collection]:
    """The collections that exist, by id."""
    found = await _found(conn, "c.collection_id = ANY(%s)", (list(collection_ids),))
    return {c.collection_id: c for c in found}


async def page(conn: Connection, after: str, limit: int) -> list[Collection]:
    """Collections with an id after `after`, in order of id."""
    where = "c.collection_id > %s ORDER BY c.collection_id LIMIT %s"
    return await _found(conn, where, (after, limit))


async def update(
    conn: Connection,
    collection_id: str,
    display_name: str | None,
    description: str | None,
    default_recipe: str | None,
) -> None:
    """Sets what is not None and gives the collection a new etag."""
    await run(
        conn,
        f"""UPDATE retriever.collections
            SET display_name = coalesce(%s, display_name), description = coalesce(%s, description),
                default_recipe = coalesce(%s, default_recipe), etag = %s, update_time = now()
            WHERE tenant_id = {TENANT} AND collection_id = %s""",
        (display_name, description, default_recipe, uuid4(), collection_id),
    )


async def delete(conn: Connection, collection_id: str) -> None:
    """Removes the collection and everything that belongs to it."""
    for table in (
        "vectors", "token_vectors", "postings", "segments", "dead_items", "items",
        "document_metadata", "chunks", "uploads", "documents", "spaces", "collections",
    ):  # fmt: skip
        await run(
            conn,
            f"DELETE FROM retriever.{table} WHERE tenant_id = {TENANT} AND collection_id = %s",
            (collection_id,),
        )


async def count_up(
    conn: Connection,
    collection_id: str,
    *,
    documents: int,
    chunks: int,
    items: int,
    length: int,
) -> None:
    """Adds to the statistics, in the transaction that changes what they count."""
    await run(
        conn,
        f"""UPDATE retriever.collections
            SET document_count = document_count + %s, chunk_count = chunk_count + %s,
                item_count = item_count + %s, item_length = item_length + %s,
                version = version + 1, update_time = now()
            WHERE tenant_id = {TENANT} AND collection_id = %s""",
        (documents, chunks, items, length, collection_id),
    )


async def take_items(conn: Connection, collection_id: str, count: int) -> tuple[int, int]:
    """Reserves `count` item numbers and one segment number: (first item, segment)."""
    row = await one(
        conn,
        f"""UPDATE retriever.collections
            SET next_item = next_item + %s, next_segment = next_segment + 1
            WHERE tenant_id = {TENANT} AND collection_id = %s
            RETURNING next_item - %s AS first_item, next_segment - 1 AS segment""",
        (count, collection_id, count),
    )
    if row is None:
        raise LookupError(collection_id)
    return int(row["first_item"]), int(row["segment"])


# ---- spaces ------------------------------------------------------------------------------------


async def add_space(conn: Connection, collection_id: str, model_id: str, state: str) -> None:
    """Adds an empty space; one that exists gets the state."""
    await run(
        conn,
        f"""INSERT INTO retriever.spaces (tenant_id, collection_id, model_id, state)
            VALUES ({TENANT}, %s, %s, %s)
            ON CONFLICT (tenant_id, collection_id, model_id)
                DO UPDATE SET state = excluded.state""",
        (collection_id, model_id, state),
    )


async def being_reembedded(conn: Connection, collection_id: str) -> bool:
    """True while a re-embedding of the collection waits, runs or is going to be retried."""
    row = await one(
        conn,
        f"""SELECT 1 AS found FROM retriever.jobs
            WHERE tenant_id = {TENANT} AND kind = 'reembed'
              AND subject ->> 'collection_id' = %s
              AND state IN ('queued', 'running', 'retrying') LIMIT 1""",
        (collection_id,),
    )
    return row is not None


async def describe_space(
    conn: Connection, collection_id: str, model_id: str, revision: str, dimensions: int
) -> Space | None:
    """Records what the first vectors of a space tell about their model; returns the space as it
    is, None when it is gone. An emptied space that gets another model's has no index any more."""
    other = (dimensions, revision, revision)
    row = await one(
        conn,
        f"""UPDATE retriever.spaces AS s
            SET model_revision = CASE WHEN {_BLANK} THEN %s ELSE s.model_revision END,
                dimensions = CASE WHEN {_BLANK} THEN %s ELSE s.dimensions END,
                index_name = CASE WHEN {_OTHER} THEN NULL ELSE s.index_name END,
                ef_search = CASE WHEN {_OTHER} THEN NULL ELSE s.ef_search END,
                index_tried = CASE WHEN {_OTHER} THEN 0 ELSE s.index_tried END
            WHERE s.tenant_id = {TENANT} AND s.collection_id = %s AND s.model_id = %s
            RETURNING {_SPACE_COLUMNS}""",
        (revision, dimensions, *other, *other, *other, collection_id, model_id),
    )
    return _space(row) if row else None


async def set_revision(
    conn: Connection, collection_id: str, model_id: str, old: str, new: str
) -> None:
    """Names a space's vectors by another revision, which was found to give the same ones."""
    await run(
        conn,
        f"""UPDATE retriever.spaces SET model_revision = %s
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND model_revision = %s""",
        (new, collection_id, model_id, old),
    )


async def count_vectors(conn: Connection, collection_id: str, model_id: str, change: int) -> None:
    """Adds to a space's number of vectors."""
    await run(
        conn,
        f"""UPDATE retriever.spaces SET vectors = vectors + %s
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s""",
        (change, collection_id, model_id),
    )


async def activate_space(conn: Connection, collection_id: str, model_id: str) -> None:
    """Makes a space the active one; the old one becomes ready."""
    await run(
        conn,
        f"""UPDATE retriever.spaces
            SET state = CASE WHEN model_id = %s THEN 'active' ELSE 'ready' END
            WHERE tenant_id = {TENANT} AND collection_id = %s
              AND (model_id = %s OR state = 'active')""",
        (model_id, collection_id, model_id),
    )
    await run(
        conn,
        f"""UPDATE retriever.collections
            SET previous_model_id = model_id, model_id = %s, version = version + 1,
                etag = %s, update_time = now()
            WHERE tenant_id = {TENANT} AND collection_id = %s""",
        (model_id, uuid4(), collection_id),
    )


async def set_space_state(conn: Connection, collection_id: str, model_id: str, state: str) -> None:
    """Sets a space's state."""
    await run(
        conn,
        f"""UPDATE retriever.spaces SET state = %s
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s""",
        (state, collection_id, model_id),
    )


async def set_space_index(
    conn: Connection, collection_id: str, space: Space, name: str | None, ef_search: int | None
) -> bool:
    """Records the HNSW index of a space as it was seen, or that one was tried in vain; False when
    the space is gone, or its vectors have other dimensions since."""
    row = await one(
        conn,
        f"""UPDATE retriever.spaces SET index_name = %s, ef_search = %s,
                index_tried = CASE WHEN %s::text IS NULL THEN vectors ELSE 0 END
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND dimensions = %s
            RETURNING model_id""",
        (name, ef_search, name, collection_id, space.model_id, space.dimensions),
    )
    return row is not None


async def drop_space(conn: Connection, collection_id: str, model_id: str) -> None:
    """Removes a space with its vectors."""
    for table in ("vectors", "token_vectors", "spaces"):
        await run(
            conn,
            f"""DELETE FROM retriever.{table}
                WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s""",
            (collection_id, model_id),
        )
    await run(
        conn,
        f"""UPDATE retriever.collections SET previous_model_id = NULL
            WHERE tenant_id = {TENANT} AND collection_id = %s AND previous_model_id = %s""",
        (collection_id, model_id),
    )
