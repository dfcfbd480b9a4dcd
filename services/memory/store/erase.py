"""SQL of removal: users, sessions, single items, and what has outlived its retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, LiteralString

from psycopg import sql
from psycopg.types.json import Jsonb

from services.common.db import Connection
from services.common.jobs.store import JobStore
from services.memory.domain import Receipt
from services.memory.store.turns import bump_index

_JOBS: Final = JobStore("memory")

_USER_TABLES: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    ("turns", "turn_id::text"),
    ("lexical", "kind || ':' || item_id::text"),
    ("facts", "fact_id::text"),
    ("fact_sources", "fact_id::text || ':' || turn_id::text"),
    ("episodes", "episode_id::text"),
    ("episode_sources", "episode_id::text || ':' || turn_id::text"),
    ("vectors", "kind || ':' || item_id::text || ':' || model_id"),
    ("summaries", "md5(session_id) || ':' || version::text"),
    ("readings", "reading_id::text"),
    ("sessions", "md5(session_id)"),
    ("users", "md5(user_id)"),
)


@dataclass
class Removed:
    """Ids removed per table."""

    ids: dict[str, list[str]] = field(default_factory=dict)

    def add(self, table: str, ids: Sequence[str]) -> None:
        """Count more ids of a table."""
        if ids:
            self.ids.setdefault(table, []).extend(ids)

    @property
    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return {table: len(ids) for table, ids in sorted(self.ids.items())}


async def _ids(conn: Connection, query: Any, parameters: Any) -> list[str]:
    cursor = await conn.execute(query, parameters)
    return [str(row["id"]) for row in await cursor.fetchall()]


async def user(conn: Connection, user_id: str) -> Removed:
    """Everything of a user in every table of the schema, stored answers and queued work
    included."""
    removed = Removed()
    for table, key in _USER_TABLES:
        statement = sql.SQL(
            "DELETE FROM {} WHERE tenant_id = %(tenant)s AND user_id = %s RETURNING {} AS id"
        ).format(sql.Identifier("memory", table), sql.SQL(key))
        removed.add(table, await _ids(conn, statement, (user_id,)))
    removed.add("stored_answers", await answers(conn, user_id, keep_appends=False))
    removed.add("jobs", await _JOBS.erase(conn, {"user_id": user_id}))
    return removed


async def answers(conn: Connection, user_id: str, *, keep_appends: bool) -> list[str]:
    """Stored answers about a user; those of AppendTurn hold ids only and may stay."""
    return await _ids(
        conn,
        "DELETE FROM memory.requests WHERE tenant_id = %(tenant)s AND subject = %s"
        " AND (NOT %s OR rpc NOT LIKE '%%AppendTurnRequest') RETURNING md5(request_id) AS id",
        (user_id, keep_appends),
    )


async def turns_of_session(conn: Connection, user_id: str, session_id: str) -> list[str]:
    """Ids of a session's turns."""
    return await _ids(
        conn,
        "SELECT turn_id AS id FROM memory.turns WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND session_id = %s",
        (user_id, session_id),
    )


async def session_rows(conn: Connection, user_id: str, session_id: str, removed: Removed) -> None:
    """The session itself and its work."""
    removed.add("sessions", await _ids(
        conn,
        "DELETE FROM memory.sessions WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND session_id = %s"
        " RETURNING md5(session_id) AS id",
        (user_id, session_id),
    ))  # fmt: skip
    removed.add("jobs", await _JOBS.erase(conn, {"user_id": user_id, "session_id": session_id}))


async def summaries(
    conn: Connection, user_id: str, session_ids: Sequence[str], removed: Removed
) -> list[str]:
    """All versions of these sessions' summaries, and those of the user, which are made of them;
    returns whose there were ("": the user's)."""
    cursor = await conn.execute(
        "DELETE FROM memory.summaries WHERE tenant_id = %(tenant)s"
        " AND user_id = %s AND session_id = ANY(%s)"
        " RETURNING session_id, md5(session_id) || ':' || version::text AS id",
        (user_id, ["", *session_ids]),
    )
    rows = await cursor.fetchall()
    removed.add("summaries", [row["id"] for row in rows])
    return sorted({row["session_id"] for row in rows})


async def turns(conn: Connection, user_id: str, turn_ids: Sequence[str], removed: Removed) -> None:
    """Turns with their lexical entries and vectors."""
    removed.add("turns", await _ids(
        conn,
        "DELETE FROM memory.turns WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND turn_id = ANY(%s::uuid[])"
        " RETURNING turn_id AS id",
        (user_id, list(turn_ids)),
    ))  # fmt: skip
    await items(conn, user_id, "turn", turn_ids, removed)


async def items(
    conn: Connection, user_id: str, kind: str, item_ids: Sequence[str], removed: Removed
) -> None:
    """Lexical entries and vectors of some items."""
    parameters = (user_id, kind, list(item_ids))
    removed.add("lexical", await _ids(
        conn,
        "DELETE FROM memory.lexical WHERE tenant_id = %(tenant)s AND user_id = %s AND kind = %s"
        " AND item_id = ANY(%s::uuid[])"
        " RETURNING kind || ':' || item_id::text AS id",
        parameters,
    ))  # fmt: skip
    removed.add("vectors", await _ids(
        conn,
        "DELETE FROM memory.vectors WHERE tenant_id = %(tenant)s AND user_id = %s AND kind = %s"
        " AND item_id = ANY(%s::uuid[])"
        " RETURNING kind || ':' || item_id::text || ':' || model_id AS id",
        parameters,
    ))  # fmt: skip


_REMOVED_FACT: Final = (
    " RETURNING f.fact_id, f.attribute, f.value, f.value_key, f.valid_from, f.state, f.cardinality"
)


async def orphan_facts(
    conn: Connection, user_id: str, turn_ids: Sequence[str], removed: Removed
) -> list[dict[str, Any]]:
    """Facts that rested on these turns alone: removed, and returned (attribute, value,
    valid_from). One that never had a source rests on no turn, unless it is an earlier part of a
    removed one: earlier versions gave all sources of a record that was cut in two to the later
    part."""
    cursor = await conn.execute(
        "DELETE FROM memory.fact_sources WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND turn_id = ANY(%s::uuid[])"
        " RETURNING fact_id, fact_id::text || ':' || turn_id::text AS id",
        (user_id, list(turn_ids)),
    )
    sources = await cursor.fetchall()
    removed.add("fact_sources", [row["id"] for row in sources])
    cursor = await conn.execute(
        "DELETE FROM memory.facts AS f WHERE f.tenant_id = %(tenant)s"
        " AND f.user_id = %s AND f.fact_id = ANY(%s) AND f.origin <> 'caller' AND NOT EXISTS"
        " (SELECT 1 FROM memory.fact_sources AS s WHERE s.tenant_id = %(tenant)s"
        "  AND s.user_id = f.user_id AND s.fact_id = f.fact_id)" + _REMOVED_FACT,
        (user_id, [row["fact_id"] for row in sources]),
    )
    rows = await cursor.fetchall()
    cursor = await conn.execute(
        "DELETE FROM memory.facts AS f USING unnest(%s::text[], %s::text[])"
        " AS gone (attribute, value_key)"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %s AND f.attribute = gone.attribute"
        " AND f.value_key = gone.value_key AND f.origin <> 'caller' AND NOT EXISTS"
        " (SELECT 1 FROM memory.fact_sources AS s WHERE s.tenant_id = %(tenant)s"
        "  AND s.user_id = f.user_id AND s.fact_id = f.fact_id)" + _REMOVED_FACT,
        ([row["attribute"] for row in rows], [row["value_key"] for row in rows], user_id),
    )
    rows += await cursor.fetchall()
    removed.add("facts", [str(row["fact_id"]) for row in rows])
    return rows


async def reopen(conn: Connection, user_id: str, attribute: str, valid_to: datetime) -> None:
    """What a removed value had closed is current again, unless something else is."""
    await conn.execute(
        "UPDATE memory.facts AS f SET state = 'active', valid_to = NULL, closed_at = NULL"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %(user)s AND f.attribute = %(attribute)s"
        " AND f.state = 'superseded'"
        " AND f.valid_to = %(to)s AND NOT EXISTS (SELECT 1 FROM memory.facts AS o"
        "  WHERE o.tenant_id = %(tenant)s AND o.user_id = %(user)s AND o.attribute = %(attribute)s"
        " AND o.state = 'active')",
        {"user": user_id, "attribute": attribute, "to": valid_to},
    )


async def facts_like(
    conn: Connection, user_id: str, attribute: str, value_key: str, removed: Removed
) -> tuple[list[str], set[str]]:
    """Every record of an attribute's value; returns the turns they rested on, and the sessions of
    those."""
    cursor = await conn.execute(
        "DELETE FROM memory.fact_sources AS s USING memory.facts AS f"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %(user)s AND s.tenant_id = %(tenant)s"
        " AND s.user_id = %(user)s AND s.fact_id = f.fact_id AND f.attribute = %(attribute)s"
        " AND f.value_key = %(key)s RETURNING s.turn_id, s.session_id",
        {"user": user_id, "attribute": attribute, "key": value_key},
    )
    rows = await cursor.fetchall()
    turn_ids = sorted({str(row["turn_id"]) for row in rows})
    removed.add("facts", await _ids(
        conn,
        "DELETE FROM memory.facts WHERE tenant_id = %(tenant)s AND user_id = %s AND attribute = %s"
        " AND value_key = %s"
        " RETURNING fact_id AS id",
        (user_id, attribute, value_key),
    ))  # fmt: skip
    return turn_ids, {row["session_id"] for row in rows}


async def episodes_of_turns(conn: Connection, user_id: str, turn_ids: Sequence[str]) -> list[str]:
    """Notes that tell of these turns: those without another source, and those whose other sources
    are of the same session (one note over several turns)."""
    return await _ids(
        conn,
        "SELECT DISTINCT s.episode_id AS id FROM memory.episode_sources AS s"
        " WHERE s.tenant_id = %(tenant)s AND s.user_id = %(user)s"
        " AND s.turn_id = ANY(%(turns)s::uuid[]) AND NOT EXISTS"
        " (SELECT 1 FROM memory.episode_sources AS o WHERE o.tenant_id = %(tenant)s"
        " AND o.user_id = %(user)s"
        "  AND o.episode_id = s.episode_id AND o.session_id <> s.session_id"
        "  AND NOT o.turn_id = ANY(%(turns)s::uuid[]))",
        {"user": user_id, "turns": list(turn_ids)},
    )


async def episodes(
    conn: Connection, user_id: str, episode_ids: Sequence[str], removed: Removed
) -> list[dict[str, Any]]:
    """Notes with sources, lexical entries and vectors; returns (note, turns, sessions) of each: it
    was made from these turns, and said in these sessions."""
    cursor = await conn.execute(
        "SELECT e.note, array(SELECT s.turn_id::text FROM memory.episode_sources AS s"
        " WHERE s.tenant_id = %(tenant)s AND s.user_id = e.user_id"
        " AND s.episode_id = e.episode_id) AS turns,"
        " array(SELECT e.session_id UNION SELECT s.session_id FROM memory.episode_sources AS s"
        " WHERE s.tenant_id = %(tenant)s AND s.user_id = e.user_id"
        " AND s.episode_id = e.episode_id) AS sessions"
        " FROM memory.episodes AS e WHERE e.tenant_id = %(tenant)s AND e.user_id = %s"
        " AND e.episode_id = ANY(%s::uuid[])",
        (user_id, list(episode_ids)),
    )
    rows = await cursor.fetchall()
    removed.add("episode_sources", await _ids(
        conn,
        "DELETE FROM memory.episode_sources WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND episode_id = ANY(%s::uuid[])"
        " RETURNING episode_id::text || ':' || turn_id::text AS id",
        (user_id, list(episode_ids)),
    ))  # fmt: skip
    removed.add("episodes", await _ids(
        conn,
        "DELETE FROM memory.episodes WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND episode_id = ANY(%s::uuid[])"
        " RETURNING episode_id AS id",
        (user_id, list(episode_ids)),
    ))  # fmt: skip
    await items(conn, user_id, "episode", episode_ids, removed)
    return rows


async def unlink_turns(
    conn: Connection, user_id: str, turn_ids: Sequence[str], removed: Removed
) -> None:
    """Notes that remain lose these turns as sources."""
    removed.add("episode_sources", await _ids(
        conn,
        "DELETE FROM memory.episode_sources WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND turn_id = ANY(%s::uuid[])"
        " RETURNING episode_id::text || ':' || turn_id::text AS id",
        (user_id, list(turn_ids)),
    ))  # fmt: skip


async def reading(conn: Connection, user_id: str, document_id: str, removed: Removed) -> bool:
    """One reading with its vector; False when there is none."""
    ids = await _ids(
        conn,
        "DELETE FROM memory.readings WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND document_id = %s"
        " RETURNING reading_id AS id",
        (user_id, document_id),
    )
    removed.add("readings", ids)
    await items(conn, user_id, "reading", ids, removed)
    return bool(ids)


async def put_receipt(conn: Connection, receipt: Receipt) -> None:
    """Keep a receipt."""
    await conn.execute(
        "INSERT INTO memory.receipts (tenant_id, receipt_id, scope, subject_hash, removed,"
        " content_hash, tombstones, erase_time)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s, %s)",
        (
            receipt.receipt_id, receipt.scope, receipt.subject_hash, Jsonb(dict(receipt.removed)),
            receipt.content_hash, receipt.tombstones, receipt.erased_at,
        ),
    )  # fmt: skip


async def ended_job(
    conn: Connection, job_id: str, kind: str, subject: dict[str, str], result: dict[str, str]
) -> None:
    """A status row of work that was done within the call."""
    await conn.execute(
        "INSERT INTO memory.jobs (tenant_id, job_id, kind, state, subject, result, attempts,"
        " end_time)"
        " VALUES (%(tenant)s, %s, %s, 'succeeded', %s, %s, 1, now())",
        (job_id, kind, Jsonb(subject), Jsonb(result)),
    )


_PURGES: Final[dict[str, LiteralString]] = {
    "episodes": "SELECT user_id, episode_id AS id FROM memory.episodes"
    " WHERE tenant_id = %(tenant)s AND event_time < %s ORDER BY user_id LIMIT 1000",
    "turns": "SELECT user_id, turn_id AS id FROM memory.turns"
    " WHERE tenant_id = %(tenant)s AND event_time < %s ORDER BY user_id LIMIT 1000",
    # By the whole key: an import gives two users facts of the same id.
    "closed_facts": "DELETE FROM memory.facts WHERE tenant_id = %(tenant)s"
    " AND (user_id, fact_id) IN (SELECT user_id, fact_id FROM memory.facts"
    "  WHERE tenant_id = %(tenant)s AND state <> 'active'"
    "  AND coalesce(recorded_to, closed_at) < %s LIMIT 1000) RETURNING user_id, fact_id AS id",
    "readings": "SELECT user_id, document_id AS id FROM memory.readings"
    " WHERE tenant_id = %(tenant)s AND read_time < %s ORDER BY user_id LIMIT 1000",
    "summary_versions": "DELETE FROM memory.summaries AS s WHERE s.tenant_id = %(tenant)s"
    " AND s.create_time < %s AND EXISTS (SELECT 1 FROM memory.summaries AS n"
    "  WHERE n.tenant_id = %(tenant)s AND n.user_id = s.user_id AND n.session_id = s.session_id"
    " AND n.version > s.version) RETURNING version AS id",
}


async def purge(conn: Connection, layer: str, before: datetime) -> int:
    """Remove some of what is older than `before` in a layer, over all users of the tenant, so that
    users are not locked for long; returns how many, 0 when nothing is left."""
    cursor = await conn.execute(_PURGES[layer], (before,))
    rows = await cursor.fetchall()
    if layer not in ("episodes", "turns", "readings"):
        if layer == "closed_facts" and rows:
            await conn.execute(
                "DELETE FROM memory.fact_sources AS s USING unnest(%s::text[], %s::uuid[])"
                " AS gone (user_id, fact_id)"
                " WHERE s.tenant_id = %(tenant)s"
                " AND s.user_id = gone.user_id AND s.fact_id = gone.fact_id",
                ([row["user_id"] for row in rows], [row["id"] for row in rows]),
            )
        return len(rows)
    removed = Removed()
    by_user: dict[str, list[str]] = {}
    for row in rows:
        by_user.setdefault(row["user_id"], []).append(str(row["id"]))
    for user_id, ids in sorted(by_user.items()):
        if layer == "episodes":
            await episodes(conn, user_id, ids, removed)
        elif layer == "turns":
            await turns(conn, user_id, ids, removed)
        else:
            for document_id in ids:
                await reading(conn, user_id, document_id, removed)
        await bump_index(conn, user_id)
    return len(rows)
