"""SQL of turns and users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from services.common.db import Connection
from services.memory.domain import Message, Role, Turn

_COLUMNS = (
    "t.turn_id, t.user_id, t.session_id, t.sequence, t.position, t.messages, t.event_time,"
    " t.time_zone, t.create_time, t.digest_state, t.digest_attempts, t.flags, t.metadata"
)


@dataclass(frozen=True)
class NewTurn:
    """Everything the append function needs."""

    rpc: str
    request_id: str
    request_hash: bytes
    user_id: str
    session_id: str
    turn_id: str
    messages: Sequence[Message]
    event_time: datetime
    time_zone: str
    flags: Sequence[str]
    metadata: dict[str, Any]
    tok_version: str
    terms: Sequence[str]
    lock: str
    dedupe: str


@dataclass(frozen=True)
class AppendReceipt:
    """What the append function answers; `replayed` when the request_id was known."""

    replayed: bool
    request_hash: bytes
    turn_id: str
    sequence: int
    position: int
    job_id: str
    event_time: datetime


def turn_of(row: dict[str, Any]) -> Turn:
    """A turn of a row with the columns above."""
    return Turn(
        turn_id=str(row["turn_id"]),
        user_id=row["user_id"],
        session_id=row["session_id"],
        sequence=row["sequence"],
        messages=tuple(
            Message(Role(m["role"]), m["text"], m.get("speaker", "")) for m in row["messages"]
        ),
        event_time=row["event_time"].astimezone(UTC),
        time_zone=row["time_zone"],
        created_at=row["create_time"].astimezone(UTC),
        digested=row["digest_state"] == "done",
        flags=tuple(row["flags"]),
        metadata=row["metadata"],
        position=row["position"],
        attempts=row["digest_attempts"],
    )


def messages_json(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as they stand in the column."""
    return [
        {"role": m.role.value, "text": m.text} | ({"speaker": m.speaker} if m.speaker else {})
        for m in messages
    ]


async def append_all(
    conn: Connection, turns: Sequence[tuple[str, NewTurn]], *, wait: bool
) -> list[AppendReceipt | None]:
    """One statement, one transaction for (tenant id, turn) pairs that stand in the order of tenant
    and user. Without `wait` None for a turn of a user whose row is locked."""
    cursor = await conn.execute(
        "SELECT busy, replayed, request_hash, receipt FROM memory.append_turns(%s, %s)",
        (Jsonb([_record(tenant_id, turn) for tenant_id, turn in turns], dumps=_dumps), wait),
    )
    return [None if row["busy"] else _receipt(row) for row in await cursor.fetchall()]


def _record(tenant_id: str, turn: NewTurn) -> dict[str, Any]:
    return {
        "tenant": tenant_id, "rpc": turn.rpc, "request_id": turn.request_id,
        "hash": turn.request_hash.hex(), "user": turn.user_id, "session": turn.session_id,
        "turn_id": turn.turn_id, "messages": messages_json(turn.messages),
        "event_time": turn.event_time.isoformat(), "zone": turn.time_zone,
        "flags": "\n".join(turn.flags), "metadata": turn.metadata,
        "tok_version": turn.tok_version, "terms": "\n".join(turn.terms),
        "lock": turn.lock, "dedupe": turn.dedupe,
    }  # fmt: skip


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _receipt(row: dict[str, Any]) -> AppendReceipt:
    receipt = row["receipt"]
    return AppendReceipt(
        replayed=row["replayed"],
        request_hash=bytes(row["request_hash"]),
        turn_id=receipt["turn_id"],
        sequence=receipt["sequence"],
        position=receipt["position"],
        job_id=receipt["job_id"],
        event_time=datetime.fromtimestamp(float(receipt["event_time"]), UTC),
    )


async def get(conn: Connection, user_id: str, turn_ids: Sequence[str]) -> list[Turn]:
    """Turns by id."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.turns AS t WHERE t.tenant_id = %(tenant)s"
        f" AND t.user_id = %s AND t.turn_id ="
        f" ANY(%s::uuid[])",
        (user_id, list(turn_ids)),
    )
    return [turn_of(row) for row in await cursor.fetchall()]


async def page(
    conn: Connection,
    user_id: str,
    session_id: str,
    undigested_only: bool,
    after: tuple[datetime, int] | None,
    limit: int,
) -> list[Turn]:
    """Turns, newest event first; `after` is (event_time, position) of the last one seen."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.turns AS t WHERE t.tenant_id = %(tenant)s"
        f" AND t.user_id = %(user)s"
        " AND (%(session)s = '' OR t.session_id = %(session)s)"
        " AND (NOT %(fresh)s OR t.digest_state <> 'done')"
        " AND (%(time)s::timestamptz IS NULL OR (t.event_time, t.position) < (%(time)s,"
        " %(position)s))"
        " ORDER BY t.event_time DESC, t.position DESC LIMIT %(limit)s",
        {
            "user": user_id,
            "session": session_id,
            "fresh": undigested_only,
            "time": after[0] if after else None,
            "position": after[1] if after else 0,
            "limit": limit,
        },
    )
    return [turn_of(row) for row in await cursor.fetchall()]


FRESH_SQL = (
    f"SELECT {_COLUMNS}, l.terms FROM memory.turns AS t"
    " JOIN memory.lexical AS l ON l.tenant_id = %(tenant)s AND l.user_id = t.user_id"
    "  AND l.kind = 'turn' AND l.item_id = t.turn_id"
    " WHERE t.tenant_id = %(tenant)s AND t.user_id = %(user)s AND t.digest_state <> 'done'"
    " AND t.event_time <= %(as_of)s"
    "  AND (NOT %(exclude)s OR t.session_id <> %(session)s)"
    " ORDER BY t.position DESC LIMIT %(limit)s"
)


async def indexed(conn: Connection, user_id: str, limit: int) -> list[tuple[Turn, list[str]]]:
    """The newest turns of a user with their terms, for the search index."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}, l.terms FROM memory.turns AS t"
        " JOIN memory.lexical AS l ON l.tenant_id = %(tenant)s AND l.user_id = t.user_id"
        "  AND l.kind = 'turn' AND l.item_id = t.turn_id"
        " WHERE t.tenant_id = %(tenant)s AND t.user_id = %s ORDER BY t.position DESC LIMIT %s",
        (user_id, limit),
    )
    return [(turn_of(row), row["terms"]) for row in await cursor.fetchall()]


async def undigested(conn: Connection, user_id: str, session_id: str, limit: int) -> list[Turn]:
    """Turns of a session that wait for digestion, oldest first."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.turns AS t WHERE t.tenant_id = %(tenant)s"
        f" AND t.user_id = %s AND t.session_id = %s"
        " AND t.digest_state = 'fresh' ORDER BY t.sequence LIMIT %s",
        (user_id, session_id, limit),
    )
    return [turn_of(row) for row in await cursor.fetchall()]


async def between(
    conn: Connection, user_id: str, session_id: str, after: int, until: int
) -> list[Turn]:
    """Turns of a session with after < sequence <= until, in order."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.turns AS t WHERE t.tenant_id = %(tenant)s"
        f" AND t.user_id = %s AND t.session_id = %s"
        " AND t.sequence > %s AND t.sequence <= %s ORDER BY t.sequence",
        (user_id, session_id, after, until),
    )
    return [turn_of(row) for row in await cursor.fetchall()]


async def lock_fresh(conn: Connection, user_id: str, turn_ids: Sequence[str]) -> set[str]:
    """Of `turn_ids`, those that are still there and still wait; locked until the transaction
    ends."""
    cursor = await conn.execute(
        "SELECT turn_id FROM memory.turns WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND turn_id = ANY(%s::uuid[])"
        " AND digest_state = 'fresh' ORDER BY sequence FOR UPDATE",
        (user_id, list(turn_ids)),
    )
    return {str(row["turn_id"]) for row in await cursor.fetchall()}


async def mark_digested(conn: Connection, user_id: str, turn_ids: Sequence[str]) -> None:
    """These turns are done."""
    await conn.execute(
        "UPDATE memory.turns SET digest_state = 'done', digest_error = NULL"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND turn_id = ANY(%s::uuid[])",
        (user_id, list(turn_ids)),
    )


async def count_attempt(
    conn: Connection, user_id: str, turn_id: str, limit: int, reason: str
) -> bool:
    """One more failed attempt at a turn; True when it is quarantined now."""
    cursor = await conn.execute(
        "UPDATE memory.turns SET digest_attempts = digest_attempts + 1, digest_error = %s,"
        " digest_state = CASE WHEN digest_attempts + 1 >= %s THEN 'quarantined' ELSE"
        " digest_state END"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND turn_id = %s"
        " AND digest_state = 'fresh' RETURNING digest_state",
        (reason, limit, user_id, turn_id),
    )
    row = await cursor.fetchone()
    return row is not None and row["digest_state"] == "quarantined"


async def release_quarantined(conn: Connection, user_id: str, session_id: str) -> int:
    """Give quarantined turns of a session another round of attempts; returns how many."""
    cursor = await conn.execute(
        "UPDATE memory.turns SET digest_state = 'fresh', digest_attempts = 0"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND session_id = %s"
        " AND digest_state = 'quarantined'",
        (user_id, session_id),
    )
    return cursor.rowcount


async def lock_user(conn: Connection, user_id: str) -> bool:
    """Take the user's row lock; False when the user is gone (erased)."""
    cursor = await conn.execute(
        "SELECT 1 FROM memory.users WHERE tenant_id = %(tenant)s AND user_id = %s FOR UPDATE",
        (user_id,),
    )
    return await cursor.fetchone() is not None


async def ensure_user(conn: Connection, user_id: str) -> None:
    """Take the user's row lock, creating the row where there is none; positions stay as they
    are."""
    await conn.execute(
        "INSERT INTO memory.users (tenant_id, user_id, position, index_version)"
        " VALUES (%(tenant)s, %s, 0, nextval('memory.positions'))"
        " ON CONFLICT (tenant_id, user_id) DO UPDATE SET position = memory.users.position",
        (user_id,),
    )


async def bump_index(conn: Connection, user_id: str) -> int:
    """The searchable state of the user changed: caches of older versions are void. Returns the new
    version, that of an unknown user too."""
    cursor = await conn.execute(
        "SELECT memory.bump_index(%(tenant)s, %s) AS version",
        (user_id,),
    )
    row = await cursor.fetchone()
    return int(row["version"]) if row else 0


async def catch_up(conn: Connection, user_id: str) -> None:
    """The user's position is that of the newest turn at least, and every session counts its turns:
    the next one takes the next number. For turns that were imported."""
    await conn.execute(
        "UPDATE memory.users SET position = greatest(position, coalesce((SELECT max(position)"
        " FROM memory.turns WHERE tenant_id = %(tenant)s AND user_id = %(user)s), 0))"
        " WHERE tenant_id = %(tenant)s AND user_id = %(user)s",
        {"user": user_id},
    )
    await conn.execute(
        "INSERT INTO memory.sessions AS s (tenant_id, user_id, session_id, turns, start_time,"
        " last_time) SELECT t.tenant_id, t.user_id, t.session_id, max(t.sequence),"
        " min(t.event_time), max(t.event_time) FROM memory.turns AS t"
        " WHERE t.tenant_id = %(tenant)s AND t.user_id = %s"
        " GROUP BY t.tenant_id, t.user_id, t.session_id"
        " ON CONFLICT (tenant_id, user_id, session_id) DO UPDATE SET"
        "  turns = greatest(s.turns, excluded.turns),"
        "  start_time = least(s.start_time, excluded.start_time),"
        "  last_time = greatest(s.last_time, excluded.last_time)",
        (user_id,),
    )


@dataclass(frozen=True)
class UserState:
    """What a read of a user is valid for; the defaults are those of an unknown user."""

    position: int = 0
    index_version: int = 0
    time_zone: str = "UTC"


STATE_SQL = (
    "SELECT position, index_version, time_zone FROM memory.users"
    " WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
)


async def state(conn: Connection, user_id: str) -> UserState:
    """The user's state as this transaction sees it."""
    cursor = await conn.execute(STATE_SQL, {"user": user_id})
    row = await cursor.fetchone()
    return UserState(**row) if row else UserState()


async def position(conn: Connection, user_id: str) -> tuple[int, int]:
    """(position, undigested turns) of a user; zeros for an unknown one."""
    cursor = await conn.execute(
        "SELECT coalesce((SELECT position FROM memory.users WHERE tenant_id = %(tenant)s"
        " AND user_id = %(user)s), 0) AS"
        " position,"
        " (SELECT count(*) FROM memory.turns WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND digest_state <>"
        " 'done') AS fresh",
        {"user": user_id},
    )
    row = await cursor.fetchone()
    return (row["position"], row["fresh"]) if row else (0, 0)


async def users(conn: Connection, after: str, limit: int) -> list[str]:
    """User ids of the tenant in order, after `after`."""
    cursor = await conn.execute(
        "SELECT user_id FROM memory.users WHERE tenant_id = %(tenant)s AND user_id > %s"
        " ORDER BY user_id LIMIT %s",
        (after, limit),
    )
    return [row["user_id"] for row in await cursor.fetchall()]
