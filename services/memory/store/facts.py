"""SQL of profile facts and tombstones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from services.common.db import Connection
from services.memory.domain import (
    Candidate,
    Cardinality,
    Fact,
    FactKind,
    FactState,
    Origin,
    Source,
)
from services.memory.profile import Resume

_COLUMNS = (
    "f.fact_id, f.user_id, f.kind, f.attribute, f.value, f.value_key, f.statement, f.cardinality,"
    " f.state, f.valid_from, f.valid_to, f.recorded_from, f.recorded_to, f.closed_at, f.origin,"
    " f.language, f.etag"
)
_SOURCES = (
    ", (SELECT coalesce(jsonb_agg(jsonb_build_object('turn', s.turn_id, 'session', s.session_id,"
    " 'quote', s.quote, 'time', s.event_time) ORDER BY s.event_time, s.turn_id), '[]')"
    " FROM memory.fact_sources AS s WHERE s.tenant_id = %(tenant)s AND s.user_id = f.user_id"
    " AND s.fact_id = f.fact_id) AS sources"
)
_MAX_SOURCES = 20


def source_of(item: dict[str, Any]) -> Source:
    """A source of its JSON form."""
    return Source(
        item["turn"], item["session"], item["quote"],
        datetime.fromisoformat(item["time"]).astimezone(UTC),
    )  # fmt: skip


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


def fact_of(row: dict[str, Any], max_sources: int = _MAX_SOURCES) -> Fact:
    """A fact of a row."""
    sources = row.get("sources") or []
    return Fact(
        fact_id=str(row["fact_id"]),
        user_id=row["user_id"],
        kind=FactKind(row["kind"]),
        attribute=row["attribute"],
        value=row["value"],
        value_key=row["value_key"],
        statement=row["statement"],
        cardinality=Cardinality(row["cardinality"]),
        state=FactState(row["state"]),
        valid_from=row["valid_from"].astimezone(UTC),
        valid_to=_utc(row["valid_to"]),
        recorded_from=row["recorded_from"].astimezone(UTC),
        recorded_to=_utc(row["recorded_to"]),
        closed_at=_utc(row["closed_at"]),
        origin=Origin(row["origin"]),
        language=row["language"],
        etag=row["etag"],
        sources=tuple(source_of(s) for s in sources[:max_sources]),
        source_count=len(sources),
    )


_CURRENT = (
    " FROM memory.facts AS f WHERE f.tenant_id = %(tenant)s AND f.user_id = %(user)s"
    " AND f.state IN ('active', 'superseded') AND f.valid_from <= %(as_of)s"
    " AND (f.valid_to IS NULL OR f.valid_to > %(as_of)s)"
)
CURRENT_SQL = (
    f"SELECT {_COLUMNS}{_SOURCES}{_CURRENT}"
    " ORDER BY f.kind DESC, f.attribute, f.valid_from, f.fact_id LIMIT %(facts)s"
)
COUNT_SQL = f"SELECT count(*) AS n{_CURRENT}"


async def listed(
    conn: Connection,
    user_id: str,
    kind: str,
    attributes: Sequence[str],
    as_of: datetime,
    known_at: datetime | None,
    after: tuple[str, str, datetime, str] | None,
    limit: int,
) -> list[Fact]:
    """Facts valid at `as_of`, by the knowledge of `known_at` (None: of now), preferences first; of
    these attributes (none: of all)."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}{_SOURCES} FROM memory.facts AS f WHERE f.tenant_id = %(tenant)s"
        f" AND f.user_id = %(user)s"
        " AND (%(kind)s = '' OR f.kind = %(kind)s)"
        " AND (%(attributes)s::text[] = '{}' OR f.attribute = ANY(%(attributes)s))"
        " AND f.valid_from <= %(as_of)s"
        " AND CASE WHEN %(known)s::timestamptz IS NULL"
        "  THEN f.state IN ('active', 'superseded') AND (f.valid_to IS NULL OR f.valid_to >"
        " %(as_of)s)"
        "  ELSE f.recorded_from <= %(known)s AND (f.recorded_to IS NULL OR f.recorded_to >"
        " %(known)s)"
        "   AND (f.valid_to IS NULL OR f.closed_at > %(known)s OR f.valid_to > %(as_of)s) END"
        " AND (%(a_kind)s = '' OR f.kind < %(a_kind)s OR (f.kind = %(a_kind)s AND"
        "  (f.attribute, f.valid_from, f.fact_id) > (%(a_attr)s, %(a_time)s::timestamptz,"
        " %(a_id)s::uuid)))"
        " ORDER BY f.kind DESC, f.attribute, f.valid_from, f.fact_id LIMIT %(limit)s",
        {
            "user": user_id, "kind": kind, "attributes": list(attributes), "as_of": as_of,
            "known": known_at,
            "a_kind": after[0] if after else "", "a_attr": after[1] if after else "",
            "a_time": after[2] if after else None, "a_id": after[3] if after else None,
            "limit": limit,
        },
    )  # fmt: skip
    return [fact_of(row) for row in await cursor.fetchall()]


async def history(
    conn: Connection,
    user_id: str,
    attributes: Sequence[str],
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[Fact]:
    """Every record of some attributes, oldest first."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}{_SOURCES} FROM memory.facts AS f WHERE f.tenant_id = %(tenant)s"
        f" AND f.user_id = %(user)s"
        " AND f.attribute = ANY(%(attributes)s) AND (%(time)s::timestamptz IS NULL"
        "  OR (f.valid_from, f.fact_id) > (%(time)s, %(id)s::uuid))"
        " ORDER BY f.valid_from, f.fact_id LIMIT %(limit)s",
        {
            "user": user_id,
            "attributes": list(attributes),
            "time": after[0] if after else None,
            "id": after[1] if after else None,
            "limit": limit,
        },
    )
    return [fact_of(row) for row in await cursor.fetchall()]


async def values(conn: Connection, user_id: str) -> list[tuple[str, str]]:
    """(attribute, value) of every record of a user, whatever its state."""
    cursor = await conn.execute(
        "SELECT attribute, value FROM memory.facts WHERE tenant_id = %(tenant)s AND user_id = %s",
        (user_id,),
    )
    return [(row["attribute"], row["value"]) for row in await cursor.fetchall()]


async def get(conn: Connection, user_id: str, fact_id: str, *, lock: bool = False) -> Fact | None:
    """One fact, or None."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}{_SOURCES} FROM memory.facts AS f"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %s"
        " AND f.fact_id = %s::uuid" + (" FOR UPDATE OF f" if lock else ""),
        (user_id, fact_id),
    )
    row = await cursor.fetchone()
    return fact_of(row) if row else None


async def timeline(conn: Connection, user_id: str, attributes: Sequence[str]) -> list[Fact]:
    """Records of attributes that are believed (active or superseded), with all sources."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}{_SOURCES} FROM memory.facts AS f WHERE f.tenant_id = %(tenant)s"
        f" AND f.user_id = %s AND"
        f" f.attribute = ANY(%s)"
        " AND f.state IN ('active', 'superseded') ORDER BY f.valid_from, f.fact_id",
        (user_id, list(attributes)),
    )
    return [fact_of(row, 10_000) for row in await cursor.fetchall()]


async def insert(
    conn: Connection,
    user_id: str,
    candidate: Candidate,
    value_key: str,
    cardinality: Cardinality,
    state: FactState,
    valid_from: datetime,
    valid_to: datetime | None,
    fact_id: str | None = None,
) -> str:
    """Add a record; returns its id."""
    fact_id = fact_id or str(uuid.uuid4())
    await conn.execute(
        "INSERT INTO memory.facts (tenant_id, user_id, fact_id, kind, attribute, value, value_key,"
        " statement, cardinality, state, valid_from, valid_to, recorded_from, closed_at, origin,"
        " language, etag)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
        " %s, now(),"
        " CASE WHEN %s::timestamptz IS NULL THEN NULL ELSE now() END, %s, %s, %s)",
        (
            user_id, fact_id, candidate.kind.value, candidate.attribute, candidate.value, value_key,
            candidate.statement, cardinality.value, state.value, valid_from, valid_to, valid_to,
            candidate.origin.value, candidate.language, uuid.uuid4().hex,
        ),
    )  # fmt: skip
    return fact_id


async def add_source(conn: Connection, user_id: str, fact_id: str, source: Source) -> None:
    """One more turn a record rests on; the same turn twice is once."""
    await conn.execute(
        "INSERT INTO memory.fact_sources (tenant_id, user_id, fact_id, turn_id, session_id,"
        " quote, event_time)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, user_id, fact_id, turn_id) DO NOTHING",
        (user_id, fact_id, source.turn_id, source.session_id, source.quote, source.event_time),
    )


async def close(
    conn: Connection, user_id: str, fact_id: str, valid_to: datetime, state: FactState
) -> None:
    """End the validity of a record."""
    await conn.execute(
        "UPDATE memory.facts SET valid_to = %s, closed_at = now(), state = %s, etag = %s"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND fact_id = %s::uuid",
        (valid_to, state.value, uuid.uuid4().hex, user_id, fact_id),
    )


async def start_earlier(conn: Connection, user_id: str, fact_id: str, start: datetime) -> None:
    """A record was true earlier than known."""
    await conn.execute(
        "UPDATE memory.facts SET valid_from = least(valid_from, %s), etag = %s"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND fact_id = %s::uuid",
        (start, uuid.uuid4().hex, user_id, fact_id),
    )


async def end_record(conn: Connection, user_id: str, fact_id: str, state: FactState) -> None:
    """Stop believing a record (corrected or retracted); history keeps it."""
    await conn.execute(
        "UPDATE memory.facts SET recorded_to = now(), state = %s, etag = %s"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND fact_id = %s::uuid",
        (state.value, uuid.uuid4().hex, user_id, fact_id),
    )


async def split(conn: Connection, user_id: str, resume: Resume) -> None:
    """Copy a record from the moment its value was said again. Later sources move along; where the
    earlier part has no other it rests on them too, and is removed with them."""
    fact_id = resume.fact_id
    new_id = str(uuid.uuid4())
    await conn.execute(
        "INSERT INTO memory.facts (tenant_id, user_id, fact_id, kind, attribute, value, value_key,"
        " statement, cardinality, state, valid_from, valid_to, recorded_from, closed_at, origin,"
        " language, etag)"
        " SELECT tenant_id, user_id, %(new)s::uuid, kind, attribute, value, value_key, statement,"
        " cardinality, %(state)s, %(at)s, %(to)s, now(),"
        " CASE WHEN %(to)s::timestamptz IS NULL THEN NULL ELSE now() END, origin, language,"
        " %(etag)s"
        " FROM memory.facts WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND fact_id = %(old)s::uuid RETURNING fact_id",
        {
            "new": new_id, "state": resume.state.value, "at": resume.at, "to": resume.valid_to,
            "etag": uuid.uuid4().hex, "user": user_id, "old": fact_id,
        },
    )  # fmt: skip
    later = {"new": new_id, "old": fact_id, "user": user_id, "at": resume.at}
    await conn.execute(
        "INSERT INTO memory.fact_sources (tenant_id, user_id, fact_id, turn_id, session_id,"
        " quote, event_time)"
        " SELECT %(tenant)s, user_id, %(new)s::uuid, turn_id, session_id, quote, event_time"
        " FROM memory.fact_sources WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND fact_id = %(old)s::uuid AND event_time >= %(at)s RETURNING turn_id",
        later,
    )
    await conn.execute(
        "DELETE FROM memory.fact_sources AS s WHERE s.tenant_id = %(tenant)s"
        " AND s.user_id = %(user)s AND s.fact_id = %(old)s::uuid AND s.event_time >= %(at)s"
        " AND EXISTS (SELECT 1 FROM memory.fact_sources AS o WHERE o.tenant_id = %(tenant)s"
        "  AND o.user_id = %(user)s AND o.fact_id = %(old)s::uuid AND o.event_time < %(at)s)",
        later,
    )


async def tombstoned(
    conn: Connection, user_hash: str, hashes: Sequence[str]
) -> dict[str, datetime]:
    """Which of the hashes have a tombstone, and since when."""
    cursor = await conn.execute(
        "SELECT content_hash, max(kill_time) AS kill_time FROM memory.tombstones"
        " WHERE tenant_id = %(tenant)s AND user_hash = %s"
        " AND content_hash = ANY(%s) GROUP BY content_hash",
        (user_hash, list(hashes)),
    )
    return {row["content_hash"]: row["kill_time"] for row in await cursor.fetchall()}


async def bury(conn: Connection, user_hash: str, kind: str, hashes: Sequence[str]) -> int:
    """Leave tombstones; returns how many there are for these hashes now."""
    await conn.execute(
        "INSERT INTO memory.tombstones (tenant_id, user_hash, kind, content_hash)"
        " SELECT %(tenant)s, %s, %s, h FROM unnest(%s::text[]) AS h"
        " ON CONFLICT (tenant_id, user_hash, kind, content_hash) DO UPDATE"
        " SET kill_time = excluded.kill_time",
        (user_hash, kind, list(hashes)),
    )
    return len(hashes)


async def unbury(conn: Connection, user_hash: str, hashes: Sequence[str]) -> None:
    """Lift tombstones: the caller or the user states it anew."""
    await conn.execute(
        "DELETE FROM memory.tombstones WHERE tenant_id = %(tenant)s AND user_hash = %s"
        " AND content_hash = ANY(%s)",
        (user_hash, list(hashes)),
    )
