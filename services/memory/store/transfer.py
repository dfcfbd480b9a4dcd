"""SQL of export and import: rows as JSON, without tenant, user and what is made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString

from psycopg import sql
from psycopg.types.json import Jsonb

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
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {"turns": {"digest_attempts": 0}}


async def rows(conn: Connection, kind: str, user_id: str) -> list[dict[str, Any]]:
    """All rows of a table that belong to a user."""
    cursor = await conn.execute(
        sql.SQL(
            "SELECT to_jsonb(t) - %s::text[] AS record FROM {} AS t WHERE t.user_id = %s ORDER"
            " BY {}"
        ).format(sql.Identifier("memory", kind), sql.SQL(TABLES[kind])),
        (list(_NOT_EXPORTED), user_id),
    )
    return [row["record"] for row in await cursor.fetchall()]


async def columns(conn: Connection) -> dict[str, set[str]]:
    """Exported columns of every table."""
    cursor = await conn.execute(
        "SELECT c.relname AS name, a.attname AS column FROM pg_attribute AS a"
        " JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'memory' AND c.relname = ANY(%s) AND a.attnum > 0 AND NOT"
        " a.attisdropped",
        (list(TABLES),),
    )
    found: dict[str, set[str]] = {kind: set() for kind in TABLES}
    for row in await cursor.fetchall():
        if row["column"] not in _NOT_EXPORTED:
            found[row["name"]].add(row["column"])
    return found


async def insert(
    conn: Connection, kind: str, user_id: str, records: Sequence[dict[str, Any]]
) -> int:
    """Insert rows that are not there yet; returns how many. Wrong types raise psycopg errors."""
    if not records:
        return 0
    position = (
        sql.SQL(" || jsonb_build_object('position', nextval('memory.positions'))")
        if kind == "turns"
        else sql.SQL("")
    )
    cursor = await conn.execute(
        sql.SQL(
            "INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, r ||"
            " %s::jsonb{position})).*"
            " FROM jsonb_array_elements(%s::jsonb) AS r ON CONFLICT DO NOTHING"
        ).format(table=sql.Identifier("memory", kind), position=position),
        (Jsonb(await _owner(conn, user_id, kind)), Jsonb(list(records))),
    )
    return cursor.rowcount


async def _owner(conn: Connection, user_id: str, kind: str) -> dict[str, Any]:
    cursor = await conn.execute("SELECT current_setting('nianlun.tenant_id') AS tenant")
    row = await cursor.fetchone()
    assert row is not None
    return {"tenant_id": row["tenant"], "user_id": user_id, **_DEFAULTS.get(kind, {})}


async def without_terms(conn: Connection, user_id: str) -> list[tuple[str, str, str]]:
    """(kind, id, text) of turns and notes that have no lexical entry."""
    cursor = await conn.execute(
        "SELECT 'turn' AS kind, t.turn_id AS id, (SELECT string_agg(m ->> 'text', E'\\n')"
        "  FROM jsonb_array_elements(t.messages) AS m) || E'\\n' || t.event_time::date AS text"
        " FROM memory.turns AS t WHERE t.user_id = %(user)s AND NOT EXISTS (SELECT 1 FROM"
        " memory.lexical AS l"
        "  WHERE l.user_id = %(user)s AND l.kind = 'turn' AND l.item_id = t.turn_id)"
        " UNION ALL SELECT 'episode', e.episode_id, e.note || E'\\n' || e.event_time::date"
        " FROM memory.episodes AS e WHERE e.user_id = %(user)s AND NOT EXISTS (SELECT 1 FROM"
        " memory.lexical AS l"
        "  WHERE l.user_id = %(user)s AND l.kind = 'episode' AND l.item_id = e.episode_id)",
        {"user": user_id},
    )
    return [(r["kind"], str(r["id"]), r["text"] or "") for r in await cursor.fetchall()]


async def fresh_sessions(conn: Connection, user_id: str) -> list[str]:
    """Sessions with turns that wait for digestion."""
    cursor = await conn.execute(
        "SELECT DISTINCT session_id FROM memory.turns WHERE user_id = %s AND digest_state = 'fresh'"
        " ORDER BY session_id",
        (user_id,),
    )
    return [row["session_id"] for row in await cursor.fetchall()]
