"""SQL that gives what earlier versions stored the keys of today."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from services.common.db import Connection


async def facts(
    conn: Connection, user_id: str, attributes: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Every record of some attributes (None: of all), whatever its state, the oldest first."""
    cursor = await conn.execute(
        "SELECT fact_id, kind, attribute, value, value_key, statement, cardinality, state, origin,"
        " valid_from FROM memory.facts"
        " WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND (%(attributes)s::text[] IS NULL OR attribute = ANY(%(attributes)s))"
        " ORDER BY recorded_from, fact_id",
        {"user": user_id, "attributes": None if attributes is None else list(attributes)},
    )
    return await cursor.fetchall()


async def merge_facts(
    conn: Connection, user_id: str, kept: Any, others: Sequence[Any], start: datetime
) -> None:
    """One record, true from `start` on, instead of several; it rests on the turns of all."""
    parameters = {"user": user_id, "kept": kept, "others": list(others), "start": start}
    await conn.execute(
        "INSERT INTO memory.fact_sources (tenant_id, user_id, fact_id, turn_id, session_id,"
        " quote, event_time)"
        " SELECT %(tenant)s, user_id, %(kept)s::uuid, turn_id, session_id, quote, event_time"
        " FROM memory.fact_sources WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND fact_id = ANY(%(others)s::uuid[])"
        " ON CONFLICT (tenant_id, user_id, fact_id, turn_id) DO NOTHING",
        parameters,
    )
    await conn.execute(
        "DELETE FROM memory.fact_sources WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND fact_id = ANY(%(others)s::uuid[])",
        parameters,
    )
    await conn.execute(
        "DELETE FROM memory.facts WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND fact_id = ANY(%(others)s::uuid[])",
        parameters,
    )
    await conn.execute(
        "UPDATE memory.facts SET valid_from = %(start)s WHERE tenant_id = %(tenant)s"
        " AND user_id = %(user)s AND fact_id = %(kept)s::uuid",
        parameters,
    )


async def set_fact_keys(conn: Connection, user_id: str, keys: Sequence[tuple[Any, str]]) -> None:
    """(fact_id, key) of some records."""
    await conn.execute(
        "UPDATE memory.facts AS f SET value_key = k.value_key"
        " FROM unnest(%s::uuid[], %s::text[]) AS k (fact_id, value_key)"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %s AND f.fact_id = k.fact_id",
        ([fact_id for fact_id, _ in keys], [key for _, key in keys], user_id),
    )


async def rename_facts(
    conn: Connection,
    user_id: str,
    attribute: str,
    cardinality: str,
    kinds: Sequence[tuple[Any, str]],
) -> None:
    """(fact_id, kind) of records that are of this attribute from now on."""
    await conn.execute(
        "UPDATE memory.facts AS f SET attribute = %s, cardinality = %s, kind = k.kind"
        " FROM unnest(%s::uuid[], %s::text[]) AS k (fact_id, kind)"
        " WHERE f.tenant_id = %(tenant)s AND f.user_id = %s AND f.fact_id = k.fact_id",
        (
            attribute, cardinality, [fact_id for fact_id, _ in kinds], [kind for _, kind in kinds],
            user_id,
        ),
    )  # fmt: skip


_NOTE: Final = (
    "SELECT episode_id, note, note_key, origin, event_time FROM memory.episodes"
    " WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
)


async def old_notes(conn: Connection, user_id: str, limit: int) -> list[dict[str, Any]]:
    """Some of the notes whose key lacks the mark of today's."""
    cursor = await conn.execute(
        f"{_NOTE} AND note_key NOT LIKE '=%%' ORDER BY create_time, episode_id LIMIT %(limit)s",
        {"user": user_id, "limit": limit},
    )
    return await cursor.fetchall()


async def notes_of_keys(
    conn: Connection, user_id: str, keys: Sequence[str]
) -> list[dict[str, Any]]:
    """The notes that have these keys."""
    cursor = await conn.execute(
        f"{_NOTE} AND note_key = ANY(%(keys)s)", {"user": user_id, "keys": list(keys)}
    )
    return await cursor.fetchall()


async def merge_notes(
    conn: Connection, user_id: str, kept: Any, others: Sequence[Any], last: datetime
) -> None:
    """One note, last said at `last`, instead of several; it rests on the turns of all."""
    parameters = {"user": user_id, "kept": kept, "others": list(others), "last": last}
    await conn.execute(
        "INSERT INTO memory.episode_sources (tenant_id, user_id, episode_id, turn_id, session_id,"
        " quote, event_time)"
        " SELECT %(tenant)s, user_id, %(kept)s::uuid, turn_id, session_id, quote, event_time"
        " FROM memory.episode_sources WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND episode_id = ANY(%(others)s::uuid[])"
        " ON CONFLICT (tenant_id, user_id, episode_id, turn_id) DO NOTHING",
        parameters,
    )
    await conn.execute(
        "UPDATE memory.episodes SET event_time = %(last)s WHERE tenant_id = %(tenant)s"
        " AND user_id = %(user)s AND episode_id = %(kept)s::uuid",
        parameters,
    )


async def set_note_keys(conn: Connection, user_id: str, keys: Sequence[tuple[Any, str]]) -> None:
    """(episode_id, key) of some notes."""
    await conn.execute(
        "UPDATE memory.episodes AS e SET note_key = k.note_key"
        " FROM unnest(%s::uuid[], %s::text[]) AS k (episode_id, note_key)"
        " WHERE e.tenant_id = %(tenant)s AND e.user_id = %s AND e.episode_id = k.episode_id",
        ([episode_id for episode_id, _ in keys], [key for _, key in keys], user_id),
    )
