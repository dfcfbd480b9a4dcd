"""SQL of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from services.common.db import Connection


@dataclass(frozen=True)
class SessionRow:
    """One session."""

    session_id: str
    turns: int
    start_time: datetime
    last_time: datetime
    end_time: datetime | None


async def get(conn: Connection, user_id: str, session_id: str) -> SessionRow | None:
    """One session, or None."""
    cursor = await conn.execute(
        "SELECT session_id, turns, start_time, last_time, end_time FROM memory.sessions"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND session_id = %s",
        (user_id, session_id),
    )
    row = await cursor.fetchone()
    return SessionRow(**row) if row else None


async def end(conn: Connection, user_id: str, session_id: str) -> bool:
    """Mark a session as ended; False when there is none."""
    cursor = await conn.execute(
        "UPDATE memory.sessions SET end_time = least(end_time, now())"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND session_id = %s",
        (user_id, session_id),
    )
    return cursor.rowcount > 0


async def page(
    conn: Connection, user_id: str, after: tuple[datetime, str] | None, limit: int
) -> list[SessionRow]:
    """Sessions, most recently active first."""
    cursor = await conn.execute(
        "SELECT session_id, turns, start_time, last_time, end_time FROM memory.sessions"
        " WHERE tenant_id = %(tenant)s AND user_id = %(user)s AND (%(time)s::timestamptz IS NULL"
        "  OR (last_time, session_id) < (%(time)s, %(id)s))"
        " ORDER BY last_time DESC, session_id DESC LIMIT %(limit)s",
        {
            "user": user_id,
            "time": after[0] if after else None,
            "id": after[1] if after else "",
            "limit": limit,
        },
    )
    return [SessionRow(**row) for row in await cursor.fetchall()]
