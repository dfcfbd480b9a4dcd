"""SQL of export and import: rows as JSON, without tenant, user and what is made anew."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString

from psycopg import sql

from services.common.db import Connection

# Table -> order of its lines (a unique key, so that the order is stable).
TABLES: Final[Mapping[str, LiteralString]] = {
    "sessions": "start_time, session_id",
    "turns": "event_time, session_id, sequence",
    "facts": "attribute, valid_from, fact_id",
    "fact_sources": "fact_id, turn_id",
    "episodes": "event_time, episode_id",
    "episode_sources": "episode_id, turn_id",
    "summaries": "session_id, version",
    "readings": "read_time, document_id",
}
_NOT_EXPORTED: Final = ("tenant_id", "user_id", "position", "digest_attempts", "digest_error")


async def rows(conn: Connection, kind: str, user_id: str) -> list[dict[str, Any]]:
    """All rows of a table that belong to a user."""
    cursor = await conn.execute(
        sql.SQL(
            "SELECT to_jsonb(t) - %s::text[] AS record FROM {} AS t WHERE t.tenant_id = %(tenant)s"
            " AND t.user_id = %s ORDER BY {}"
        ).format(sql.Identifier("memory", kind), sql.SQL(TABLES[kind])),
        (list(_NOT_EXPORTED), user_id),
    )
    return [row["record"] for row in await cursor.fetchall()]


async def insert(conn: Connection, kind: str, user_id: str, rows: Sequence[str]) -> int:
    """Insert rows (JSON objects of all exported columns) that are not there yet; returns how many.
    Wrong types raise psycopg errors."""
    if not rows:
        return 0
    names = sorted(json.loads(rows[0]))
    values = [sql.SQL("r.{}").format(sql.Identifier(name)) for name in names]
    if kind == "turns":
        names.append("position")
        values.append(sql.Composed([sql.SQL("nextval('memory.positions')")]))
    cursor = await conn.execute(
        sql.SQL(
            "INSERT INTO {table} (tenant_id, user_id, {columns}) SELECT %(tenant)s, %s, {values}"
            " FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb) AS r ON CONFLICT DO NOTHING"
        ).format(
            table=sql.Identifier("memory", kind),
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(values),
        ),
        (user_id, f"[{','.join(rows)}]"),
    )
    return cursor.rowcount


_WITHOUT_PARENT: Final[Mapping[str, LiteralString]] = {
    "fact_sources": "DELETE FROM memory.fact_sources AS s WHERE s.tenant_id = %(tenant)s"
    " AND s.user_id = %(user)s AND NOT EXISTS (SELECT 1 FROM memory.facts AS f"
    "  WHERE f.tenant_id = %(tenant)s AND f.user_id = %(user)s AND f.fact_id = s.fact_id)",
    "episode_sources": "DELETE FROM memory.episode_sources AS s WHERE s.tenant_id = %(tenant)s"
    " AND s.user_id = %(user)s AND NOT EXISTS (SELECT 1 FROM memory.episodes AS e"
    "  WHERE e.tenant_id = %(tenant)s AND e.user_id = %(user)s AND e.episode_id = s.episode_id)",
}


async def drop_loose(conn: Connection, kind: str, user_id: str) -> int:
    """Remove the rows of a table that are sources of nothing that is there; returns how many."""
    statement = _WITHOUT_PARENT.get(kind)
    return 0 if statement is None else (await conn.execute(statement, {"user": user_id})).rowcount


async def without_terms(conn: Connection, user_id: str) -> list[tuple[str, str]]:
    """(kind, id) of turns and notes that have no lexical entry."""
    cursor = await conn.execute(
        "SELECT 'turn' AS kind, t.turn_id AS id FROM memory.turns AS t WHERE"
        " t.tenant_id = %(tenant)s AND t.user_id = %(user)s AND NOT EXISTS (SELECT 1"
        "  FROM memory.lexical AS l WHERE l.tenant_id = %(tenant)s AND l.user_id = t.user_id"
        "  AND l.kind = 'turn' AND l.item_id = t.turn_id)"
        " UNION ALL SELECT 'episode', e.episode_id FROM memory.episodes AS e WHERE"
        " e.tenant_id = %(tenant)s AND e.user_id = %(user)s AND NOT EXISTS (SELECT 1"
        "  FROM memory.lexical AS l WHERE l.tenant_id = %(tenant)s AND l.user_id = e.user_id"
        "  AND l.kind = 'episode' AND l.item_id = e.episode_id)",
        {"user": user_id},
    )
    return [(r["kind"], str(r["id"])) for r in await cursor.fetchall()]


async def put_terms(
    conn: Connection,
    user_id: str,
    tok_version: str,
    rows: Sequence[tuple[str, str, Sequence[str]]],
) -> None:
    """Lexical entries of items that have none: (kind, id, terms)."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO memory.lexical (tenant_id, user_id, kind, item_id, tok_version, terms)"
            " VALUES (%(tenant)s, %s, %s, %s, %s, %s)",
            [(user_id, kind, i, tok_version, list(terms)) for kind, i, terms in rows],
        )


async def fresh_sessions(conn: Connection, user_id: str) -> list[str]:
    """Sessions with turns that wait for digestion."""
    cursor = await conn.execute(
        "SELECT DISTINCT session_id FROM memory.turns WHERE tenant_id = %(tenant)s"
        " AND user_id = %s AND digest_state = 'fresh'"
        " ORDER BY session_id",
        (user_id,),
    )
    return [row["session_id"] for row in await cursor.fetchall()]
