"""SQL of summaries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from services.common.db import Connection
from services.memory.domain import Origin, Summary

_COLUMNS = (
    "user_id, session_id, version, text, covered_turns, covered_until, from_time, to_time, origin,"
    " create_time"
)

LATEST_SQL = (
    f"SELECT DISTINCT ON (session_id) {_COLUMNS} FROM memory.summaries"
    " WHERE tenant_id = %(tenant)s AND user_id = %(user)s AND session_id = ANY(%(sessions)s)"
    " AND to_time <= %(as_of)s"
    " ORDER BY session_id, version DESC"
)


def summary_of(row: dict[str, Any]) -> Summary:
    """A summary of a row."""
    return Summary(
        user_id=row["user_id"],
        session_id=row["session_id"],
        version=row["version"],
        text=row["text"],
        covered_turns=row["covered_turns"],
        covered_until=row["covered_until"],
        from_time=row["from_time"].astimezone(UTC),
        to_time=row["to_time"].astimezone(UTC),
        created_at=row["create_time"].astimezone(UTC),
        origin=Origin(row["origin"]),
    )


async def latest(conn: Connection, user_id: str, session_id: str) -> Summary | None:
    """The newest version, or None."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.summaries WHERE tenant_id = %(tenant)s AND user_id = %s"
        f" AND session_id = %s"
        " ORDER BY version DESC LIMIT 1",
        (user_id, session_id),
    )
    row = await cursor.fetchone()
    return summary_of(row) if row else None


async def of_sessions(conn: Connection, user_id: str, limit: int) -> list[Summary]:
    """The newest version of each session, latest session first."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM (SELECT DISTINCT ON (session_id) * FROM memory.summaries"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND session_id <> ''"
        " ORDER BY session_id, version DESC) AS s"
        " ORDER BY to_time DESC, session_id LIMIT %s",
        (user_id, limit),
    )
    return [summary_of(row) for row in await cursor.fetchall()]


async def insert(
    conn: Connection,
    user_id: str,
    session_id: str,
    previous_version: int,
    text: str,
    covered_turns: int,
    covered_until: int,
    from_time: datetime,
    to_time: datetime,
    origin: Origin,
) -> bool:
    """Add the version after `previous_version`; False when somebody else has made it."""
    cursor = await conn.execute(
        "INSERT INTO memory.summaries (tenant_id, user_id, session_id, version, text,"
        " covered_turns,"
        " covered_until, from_time, to_time, origin)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, user_id, session_id, version) DO NOTHING",
        (
            user_id, session_id, previous_version + 1, text, covered_turns, covered_until,
            from_time, to_time, origin.value,
        ),
    )  # fmt: skip
    return cursor.rowcount > 0
