"""SQL of readings."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from services.common.db import Connection
from services.memory.domain import Reading

MIN_WEIGHT = 0.2
MAX_WEIGHT = 2.0

_COLUMNS = (
    "r.reading_id, r.user_id, r.document_id, r.title, r.summary, r.metadata, r.first_read_time,"
    " r.read_time, r.times, r.weight,"
    " EXISTS (SELECT 1 FROM memory.vectors AS v WHERE v.tenant_id = %(tenant)s AND v.user_id ="
    " r.user_id"
    " AND v.kind = 'reading' AND v.item_id = r.reading_id) AS has_vector"
)


def reading_of(row: dict[str, Any]) -> Reading:
    """A reading of a row."""
    return Reading(
        reading_id=str(row["reading_id"]),
        user_id=row["user_id"],
        document_id=row["document_id"],
        title=row["title"],
        summary=row["summary"],
        first_read_at=row["first_read_time"].astimezone(UTC),
        read_at=row["read_time"].astimezone(UTC),
        times=row["times"],
        weight=row["weight"],
        metadata=row["metadata"],
        has_vector=row["has_vector"],
    )


async def get(conn: Connection, user_id: str, document_id: str) -> Reading | None:
    """One reading, or None."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.readings AS r WHERE r.tenant_id = %(tenant)s"
        f" AND r.user_id = %s AND r.document_id = %s",
        (user_id, document_id),
    )
    row = await cursor.fetchone()
    return reading_of(row) if row else None


async def upsert(
    conn: Connection,
    user_id: str,
    document_id: str,
    title: str,
    summary: str,
    metadata: dict[str, Any],
    read_at: datetime,
) -> bool:
    """Record a reading; empty title, summary and metadata keep the stored ones. True when new."""
    cursor = await conn.execute(
        "INSERT INTO memory.readings AS r (tenant_id, user_id, document_id, reading_id, title,"
        " summary,"
        " metadata, first_read_time, read_time)"
        " VALUES (%(tenant)s, %(user)s, %(doc)s, %(id)s, %(title)s,"
        " %(summary)s,"
        " %(meta)s, %(at)s, %(at)s)"
        " ON CONFLICT (tenant_id, user_id, document_id) DO UPDATE SET"
        " title = CASE WHEN %(keep_title)s THEN r.title ELSE excluded.title END,"
        " summary = CASE WHEN excluded.summary = '' THEN r.summary ELSE excluded.summary END,"
        " metadata = CASE WHEN excluded.metadata = '{}' THEN r.metadata ELSE excluded.metadata END,"
        " first_read_time = least(r.first_read_time, excluded.first_read_time),"
        " read_time = greatest(r.read_time, excluded.read_time), times = r.times + 1"
        " RETURNING r.reading_id = %(id)s::uuid AS fresh",
        {
            "user": user_id, "doc": document_id, "id": str(uuid.uuid4()),
            "title": title or document_id,
            "keep_title": not title, "summary": summary, "meta": Jsonb(metadata), "at": read_at,
        },
    )  # fmt: skip
    row = await cursor.fetchone()
    return bool(row and row["fresh"])


async def page(
    conn: Connection, user_id: str, after: tuple[datetime, str] | None, limit: int
) -> list[Reading]:
    """Readings, latest first."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.readings AS r WHERE r.tenant_id = %(tenant)s"
        f" AND r.user_id = %(user)s"
        " AND (%(time)s::timestamptz IS NULL OR (r.read_time, r.document_id) < (%(time)s, %(id)s))"
        " ORDER BY r.read_time DESC, r.document_id DESC LIMIT %(limit)s",
        {
            "user": user_id,
            "time": after[0] if after else None,
            "id": after[1] if after else "",
            "limit": limit,
        },
    )
    return [reading_of(row) for row in await cursor.fetchall()]


async def count_others(conn: Connection, user_id: str, document_id: str) -> int:
    """How many documents the user has read besides this one."""
    cursor = await conn.execute(
        "SELECT count(*) AS n FROM memory.readings WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND document_id <> %s",
        (user_id, document_id),
    )
    row = await cursor.fetchone()
    return row["n"] if row else 0


async def reweigh(conn: Connection, user_id: str, document_id: str, factor: float) -> bool:
    """Multiply a reading's weight, within its bounds; False when there is none."""
    cursor = await conn.execute(
        "UPDATE memory.readings SET weight = least(greatest(weight * %s, %s), %s)"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND document_id = %s",
        (factor, MIN_WEIGHT, MAX_WEIGHT, user_id, document_id),
    )
    return cursor.rowcount > 0
