"""Documents, their uploads and their typed metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from psycopg.types.json import Jsonb

from services.common import validate
from services.common.db import Connection
from services.common.validate import Json
from services.retriever.domain import Document, Metadata, ReadDocument, Scope, Upload
from services.retriever.store import filters
from services.retriever.store.sqltools import TENANT, Row, many, one, rows, run

_MAX_START: Final = 2**31 - 2
_COLUMNS = f"""d.collection_id, d.document_id, d.title, d.format, d.uri, d.metadata, d.state,
    d.error_reason, d.error_message, d.content_hash, d.text_chars, d.chunk_count, d.revision,
    d.changes, d.create_time, d.update_time,
    (SELECT count(*) FROM retriever.chunks AS c
     JOIN retriever.collections AS o ON o.tenant_id = {TENANT}
      AND o.collection_id = c.collection_id
     WHERE c.tenant_id = {TENANT} AND c.collection_id = d.collection_id
       AND c.document_id = d.document_id
       AND NOT EXISTS (SELECT 1 FROM retriever.vectors AS v
                       WHERE v.tenant_id = {TENANT} AND v.collection_id = c.collection_id
                         AND v.model_id = o.model_id AND v.item = c.item)) AS pending_vectors"""


def _document(row: Row) -> Document:
    return Document(
        collection_id=row["collection_id"],
        document_id=row["document_id"],
        title=row["title"],
        format=row["format"],
        uri=row["uri"],
        metadata=row["metadata"],
        state=row["state"],
        error_reason=row["error_reason"],
        error_message=row["error_message"],
        content_hash=bytes(row["content_hash"]),
        text_chars=row["text_chars"],
        chunk_count=row["chunk_count"],
        pending_vectors=row["pending_vectors"],
        revision=row["revision"],
        changes=row["changes"],
        create_time=row["create_time"],
        update_time=row["update_time"],
    )


async def get(conn: Connection, collection_id: str, document_id: str) -> Document | None:
    """One document, None when there is none."""
    row = await one(
        conn,
        f"""SELECT {_COLUMNS} FROM retriever.documents AS d
            WHERE d.tenant_id = {TENANT} AND d.collection_id = %s AND d.document_id = %s""",
        (collection_id, document_id),
    )
    return _document(row) if row else None


async def text(conn: Connection, collection_id: str, document_id: str, start: int, n: int) -> str:
    """`n` characters of a document's text from `start` (from 0) on."""
    row = await one(
        conn,
        f"""SELECT substr(text, %s, %s) AS part FROM retriever.documents
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = %s""",
        # Positions of substr are of 32 bits, and no text is that long.
        (min(start, _MAX_START) + 1, n, collection_id, document_id),
    )
    return str(row["part"]) if row else ""


async def page(
    conn: Connection, scope: Scope, states: Sequence[str], after: str, limit: int
) -> list[Document]:
    """Documents of a scope with an id after `after`, in order of id."""
    where, params = filters.documents(scope, "d")
    found = await rows(
        conn,
        f"""SELECT {_COLUMNS} FROM retriever.documents AS d
            WHERE d.tenant_id = {TENANT} AND d.collection_id = %s AND d.document_id > %s
              AND (%s = '{{}}'::text[] OR d.state = ANY(%s)) {"AND " + where if where else ""}
            ORDER BY d.document_id LIMIT %s""",
        (scope.collection_id, after, list(states), list(states), *params, limit),
    )
    return [_document(row) for row in found]


async def ids_of(conn: Connection, collection_id: str, document_ids: Sequence[str]) -> set[str]:
    """Which of these documents exist."""
    found = await rows(
        conn,
        f"""SELECT document_id FROM retriever.documents
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)
            ORDER BY document_id FOR UPDATE""",
        (collection_id, list(document_ids)),
    )
    return {row["document_id"] for row in found}


async def insert_pending(conn: Connection, collection_id: str, uploads: Sequence[Upload]) -> None:
    """Makes new documents visible as pending; those that exist stay as they are."""
    await many(
        conn,
        f"""INSERT INTO retriever.documents
                (tenant_id, collection_id, document_id, title, given_title, format, uri, metadata,
                 state, content_hash)
            VALUES ({TENANT}, %s, %s, %s, %s, %s, %s, %s, 'pending', %s)
            ON CONFLICT (tenant_id, collection_id, document_id) DO NOTHING""",
        [
            (
                collection_id, u.document_id, u.title or u.document_id, u.title, u.format, u.uri,
                Jsonb(u.metadata), u.content_hash,
            )
            for u in uploads
        ],
    )  # fmt: skip


async def current(
    conn: Connection, collection_id: str, document_ids: Sequence[str]
) -> dict[str, Row]:
    """What decides whether an upload changes anything, by document; locks the documents."""
    found = await rows(
        conn,
        f"""SELECT document_id, content_hash, given_title, title, uri, format, metadata, state,
                   chunk_count, revision
            FROM retriever.documents
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)
            ORDER BY document_id FOR UPDATE""",
        (collection_id, list(document_ids)),
    )
    return {row["document_id"]: row for row in found}


async def put_ready(conn: Connection, collection_id: str, read: Sequence[ReadDocument]) -> None:
    """Writes documents that have been read, with their metadata; replaces what stood there."""
    await many(
        conn,
        f"""INSERT INTO retriever.documents
                (tenant_id, collection_id, document_id, title, given_title, format, uri, metadata,
                 state, content_hash, text, text_chars, chunk_count, revision, changes)
            VALUES ({TENANT}, %s, %s, %s, %s, %s, %s, %s, 'ready', %s, %s, %s, %s, 1, %s)
            ON CONFLICT (tenant_id, collection_id, document_id) DO UPDATE SET
                title = excluded.title, given_title = excluded.given_title,
                format = excluded.format, uri = excluded.uri, metadata = excluded.metadata,
                state = 'ready', error_reason = NULL, error_message = NULL,
                content_hash = excluded.content_hash, text = excluded.text,
                text_chars = excluded.text_chars, chunk_count = excluded.chunk_count,
                revision = retriever.documents.revision + 1, changes = excluded.changes,
                update_time = excluded.update_time""",
        [
            (
                collection_id, d.upload.document_id, d.title, d.upload.title, int(d.format),
                d.upload.uri, Jsonb(d.upload.metadata), d.upload.content_hash, d.text, len(d.text),
                len(d.chunks), Jsonb(list(d.changes)),
            )
            for d in read
        ],
    )  # fmt: skip
    await index_metadata(
        conn, collection_id, {d.upload.document_id: d.upload.metadata for d in read}
    )


async def put_metadata(conn: Connection, collection_id: str, uploads: Sequence[Upload]) -> None:
    """Changes documents' uris and metadata and nothing else."""
    await many(
        conn,
        f"""UPDATE retriever.documents SET uri = %s, metadata = %s, update_time = now()
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = %s""",
        [(u.uri, Jsonb(u.metadata), collection_id, u.document_id) for u in uploads],
    )
    await index_metadata(conn, collection_id, {u.document_id: u.metadata for u in uploads})


async def put_failed(
    conn: Connection, collection_id: str, document_id: str, reason: str, message: str
) -> None:
    """Marks a document as unreadable. An earlier version that is searchable stays so."""
    await run(
        conn,
        f"""UPDATE retriever.documents
            SET state = 'failed', error_reason = %s, error_message = %s, update_time = now()
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = %s""",
        (reason, message, collection_id, document_id),
    )


async def index_metadata(
    conn: Connection, collection_id: str, metadata: Mapping[str, Metadata]
) -> None:
    """Replaces documents' rows in the typed metadata table. `metadata`: by document."""
    await run(
        conn,
        f"""DELETE FROM retriever.document_metadata
            WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)""",
        (collection_id, list(metadata)),
    )
    await many(
        conn,
        f"""INSERT INTO retriever.document_metadata
                (tenant_id, collection_id, document_id, key, position, text_value,
                 number_value, bool_value, time_value)
            VALUES ({TENANT}, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            (collection_id, document_id, key, position, *_typed(value))
            for document_id, values in metadata.items()
            for key, stored in values.items()
            # An empty list is there as well, though it equals nothing.
            for position, value in enumerate(
                (stored or [None]) if isinstance(stored, list) else [stored]
            )
        ],
    )


def _typed(
    value: Json | None,
) -> tuple[str | None, Decimal | None, bool | None, datetime | None]:
    if value is None:
        return None, None, None, None
    if isinstance(value, bool):
        return None, None, value, None
    if isinstance(value, int | float):
        return None, Decimal(repr(value)), None, None
    if isinstance(value, dict):
        if validate.DOUBLE in value:
            return None, Decimal(value[validate.DOUBLE]), None, None
        return None, None, None, datetime.fromisoformat(value[validate.TIMESTAMP])
    return str(value), None, None, None


async def delete(conn: Connection, collection_id: str, document_ids: Sequence[str]) -> None:
    """Removes document rows, their metadata and waiting uploads (chunks are removed before)."""
    for table in ("document_metadata", "uploads", "documents"):
        await run(
            conn,
            f"""DELETE FROM retriever.{table}
                WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)""",
            (collection_id, list(document_ids)),
        )


# ---- uploads -----------------------------------------------------------------------------------


async def insert_uploads(
    conn: Connection, upload_id: str, collection_id: str, uploads: Sequence[Upload]
) -> None:
    """Keeps documents' content until the job has read it."""
    await many(
        conn,
        f"""INSERT INTO retriever.uploads
                (tenant_id, upload_id, position, collection_id, document_id, title, format, uri,
                 metadata, changes, content_hash, text, data)
            VALUES ({TENANT}, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            (
                upload_id, u.position, collection_id, u.document_id, u.title, u.format, u.uri,
                Jsonb(u.metadata), Jsonb(list(u.changes)), u.content_hash, u.text, u.data,
            )
            for u in uploads
        ],
    )  # fmt: skip


async def next_uploads(
    conn: Connection, upload_id: str, max_documents: int, max_bytes: int
) -> list[Upload]:
    """The first waiting documents of an upload, as many as fit into `max_bytes`, at least one."""
    found = await rows(
        conn,
        f"""SELECT * FROM (
                SELECT position, document_id, title, format, uri, metadata, changes, content_hash,
                       text, data,
                       sum(coalesce(octet_length(text), 0) + coalesce(octet_length(data), 0))
                           OVER (ORDER BY position) AS bytes
                FROM retriever.uploads WHERE tenant_id = {TENANT} AND upload_id = %s
                ORDER BY position LIMIT %s) AS waiting
            WHERE bytes <= %s OR position = (
                SELECT min(position) FROM retriever.uploads
                WHERE tenant_id = {TENANT} AND upload_id = %s)
            ORDER BY position""",
        (upload_id, max_documents, max_bytes, upload_id),
    )
    return [
        Upload(
            position=row["position"],
            document_id=row["document_id"],
            title=row["title"],
            format=row["format"],
            uri=row["uri"],
            metadata=row["metadata"],
            changes=row["changes"],
            content_hash=bytes(row["content_hash"]),
            text=row["text"],
            data=None if row["data"] is None else bytes(row["data"]),
        )
        for row in found
    ]


async def count_uploads(conn: Connection, upload_id: str) -> int:
    """Documents of an upload that still wait."""
    row = await one(
        conn,
        f"""SELECT count(*) AS n FROM retriever.uploads
            WHERE tenant_id = {TENANT} AND upload_id = %s""",
        (upload_id,),
    )
    return int(row["n"]) if row else 0


async def take_uploads(conn: Connection, upload_id: str, positions: Sequence[int]) -> set[int]:
    """Removes waiting documents; returns the positions that no other run has taken.

    What earlier uploads still hold of these documents goes with them: a job that was cancelled or
    failed and is replayed must not put an older version over this one.
    """
    taken = await rows(
        conn,
        f"""DELETE FROM retriever.uploads
            WHERE tenant_id = {TENANT} AND upload_id = %s AND position = ANY(%s)
            RETURNING position, collection_id, document_id, create_time""",
        (upload_id, list(positions)),
    )
    if taken:
        # One upload is of one collection and one transaction, hence of one time.
        await run(
            conn,
            f"""DELETE FROM retriever.uploads
                WHERE tenant_id = {TENANT} AND collection_id = %s AND document_id = ANY(%s)
                  AND create_time < %s""",
            (
                taken[0]["collection_id"],
                [row["document_id"] for row in taken],
                taken[0]["create_time"],
            ),
        )
    return {row["position"] for row in taken}


async def drop_uploads(conn: Connection, upload_id: str) -> None:
    """Removes what is left of an upload."""
    await run(
        conn,
        f"DELETE FROM retriever.uploads WHERE tenant_id = {TENANT} AND upload_id = %s",
        (upload_id,),
    )
