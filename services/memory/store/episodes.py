"""SQL of episode notes, lexical entries and vectors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from pgvector import HalfVector

from services.common.db import Connection
from services.memory.domain import Episode, Note, Origin, Source
from services.memory.store.facts import source_of
from services.memory.vectors import ItemVectors, Model, PackedTokens

_COLUMNS = (
    "e.episode_id, e.user_id, e.session_id, e.note, e.note_key, e.event_time, e.about_from,"
    " e.about_to,"
    " e.origin, e.language, e.etag, e.create_time,"
    " (SELECT coalesce(jsonb_agg(jsonb_build_object('turn', s.turn_id, 'session', s.session_id,"
    " 'quote', s.quote, 'time', s.event_time) ORDER BY s.event_time, s.turn_id), '[]')"
    " FROM memory.episode_sources AS s WHERE s.tenant_id = %(tenant)s AND s.user_id = e.user_id"
    " AND s.episode_id = e.episode_id) AS sources,"
    " EXISTS (SELECT 1 FROM memory.vectors AS v WHERE v.tenant_id = %(tenant)s AND v.user_id ="
    " e.user_id"
    " AND v.kind = 'episode' AND v.item_id = e.episode_id) AS has_vector"
)
_MAX_SOURCES = 20


def episode_of(row: dict[str, Any]) -> Episode:
    """An episode of a row."""

    def utc(value: datetime | None) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    return Episode(
        episode_id=str(row["episode_id"]),
        user_id=row["user_id"],
        session_id=row["session_id"],
        note=row["note"],
        event_time=row["event_time"].astimezone(UTC),
        origin=Origin(row["origin"]),
        language=row["language"],
        created_at=row["create_time"].astimezone(UTC),
        etag=row["etag"],
        about_from=utc(row["about_from"]),
        about_to=utc(row["about_to"]),
        sources=tuple(source_of(s) for s in row["sources"][:_MAX_SOURCES]),
        has_vector=row["has_vector"],
    )


async def indexed(conn: Connection, user_id: str, limit: int) -> list[tuple[Episode, list[str]]]:
    """The newest notes of a user with their terms."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS}, l.terms FROM memory.episodes AS e"
        " JOIN memory.lexical AS l ON l.tenant_id = %(tenant)s AND l.user_id = e.user_id"
        "  AND l.kind = 'episode' AND l.item_id = e.episode_id"
        " WHERE e.tenant_id = %(tenant)s AND e.user_id = %s"
        " ORDER BY e.event_time DESC, e.episode_id LIMIT %s",
        (user_id, limit),
    )
    return [(episode_of(row), row["terms"]) for row in await cursor.fetchall()]


async def count_indexed(conn: Connection, user_id: str, kind: str) -> int:
    """How many notes ("episode") or turns ("turn") could be searched."""
    cursor = await conn.execute(
        "SELECT count(*) AS n FROM memory.lexical WHERE tenant_id ="
        " %(tenant)s AND user_id = %s AND kind = %s",
        (user_id, kind),
    )
    row = await cursor.fetchone()
    return row["n"] if row else 0


async def page(
    conn: Connection,
    user_id: str,
    session_id: str,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[Episode]:
    """Notes, newest event first."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.episodes AS e WHERE e.tenant_id = %(tenant)s"
        f" AND e.user_id = %(user)s"
        " AND (%(session)s = '' OR e.session_id = %(session)s) AND (%(time)s::timestamptz IS NULL"
        "  OR (e.event_time, e.episode_id) < (%(time)s, %(id)s::uuid))"
        " ORDER BY e.event_time DESC, e.episode_id DESC LIMIT %(limit)s",
        {
            "user": user_id,
            "session": session_id,
            "time": after[0] if after else None,
            "id": after[1] if after else None,
            "limit": limit,
        },
    )
    return [episode_of(row) for row in await cursor.fetchall()]


async def get(
    conn: Connection, user_id: str, episode_id: str, *, lock: bool = False
) -> Episode | None:
    """One note, or None."""
    cursor = await conn.execute(
        f"SELECT {_COLUMNS} FROM memory.episodes AS e WHERE e.tenant_id = %(tenant)s"
        f" AND e.user_id = %s AND e.episode_id ="
        f" %s::uuid" + (" FOR UPDATE OF e" if lock else ""),
        (user_id, episode_id),
    )
    row = await cursor.fetchone()
    return episode_of(row) if row else None


async def insert(
    conn: Connection, user_id: str, note: Note, note_key: str, episode_id: str | None = None
) -> str:
    """Add a note, or find the one with the same key; returns its id."""
    cursor = await conn.execute(
        "INSERT INTO memory.episodes AS e (tenant_id, user_id, episode_id, session_id, note,"
        " note_key,"
        " event_time, about_from, about_to, origin, language, etag)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, user_id, note_key)"
        "  DO UPDATE SET event_time = greatest(e.event_time, excluded.event_time)"
        " RETURNING e.episode_id",
        (
            user_id, episode_id or str(uuid.uuid4()), note.session_id, note.note, note_key,
            note.event_time, note.about_from, note.about_to, note.origin.value, note.language,
            uuid.uuid4().hex,
        ),
    )  # fmt: skip
    row = await cursor.fetchone()
    assert row is not None
    return str(row["episode_id"])


async def rewrite(
    conn: Connection, user_id: str, episode_id: str, note: str, note_key: str, language: str
) -> bool:
    """Replace a note's text on a caller's authority; False when another note says the same."""
    cursor = await conn.execute(
        "UPDATE memory.episodes AS e SET note = %(note)s, note_key = %(key)s, language ="
        " %(language)s,"
        " origin = 'caller', etag = %(etag)s WHERE tenant_id = %(tenant)s AND user_id = %(user)s"
        " AND episode_id = %(id)s::uuid"
        " AND NOT EXISTS (SELECT 1 FROM memory.episodes AS o WHERE o.tenant_id = %(tenant)s"
        " AND o.user_id = %(user)s"
        "  AND o.note_key = %(key)s AND o.episode_id <> %(id)s::uuid)",
        {
            "note": note, "key": note_key, "language": language, "etag": uuid.uuid4().hex,
            "user": user_id, "id": episode_id,
        },
    )  # fmt: skip
    return cursor.rowcount > 0


async def add_source(conn: Connection, user_id: str, episode_id: str, source: Source) -> None:
    """One more turn a note rests on."""
    await conn.execute(
        "INSERT INTO memory.episode_sources"
        " (tenant_id, user_id, episode_id, turn_id, session_id, quote, event_time)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, user_id, episode_id, turn_id) DO NOTHING",
        (user_id, episode_id, source.turn_id, source.session_id, source.quote, source.event_time),
    )


async def set_terms(
    conn: Connection, user_id: str, kind: str, item_id: str, tok_version: str, terms: Sequence[str]
) -> None:
    """Write the lexical entry of an item."""
    await conn.execute(
        "INSERT INTO memory.lexical (tenant_id, user_id, kind, item_id, tok_version, terms)"
        " VALUES (%(tenant)s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, user_id, kind, item_id)"
        "  DO UPDATE SET tok_version = excluded.tok_version, terms = excluded.terms",
        (user_id, kind, item_id, tok_version, list(terms)),
    )


async def vectors(
    conn: Connection, user_id: str, kind: str, model_id: str
) -> dict[str, ItemVectors]:
    """Vectors of one kind and model, by item."""
    cursor = await conn.execute(
        "SELECT item_id, vector, token_codec, tokens FROM memory.vectors"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND kind = %s AND model_id = %s",
        (user_id, kind, model_id),
        binary=True,
    )
    return {
        str(row["item_id"]): ItemVectors(
            np.asarray(row["vector"].to_numpy(), np.float32),
            PackedTokens(row["token_codec"], row["tokens"]) if row["token_codec"] else None,
        )
        for row in await cursor.fetchall()
    }


async def put_vectors(
    conn: Connection, user_id: str, kind: str, model_id: str, items: Mapping[str, ItemVectors]
) -> None:
    """Store normalised vectors; an item that has one of this model gets the new one."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO memory.vectors"
            " (tenant_id, user_id, model_id, kind, item_id, vector, token_codec, tokens)"
            " VALUES (%(tenant)s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (tenant_id, user_id, model_id, kind, item_id) DO UPDATE SET"
            "  vector = excluded.vector, token_codec = excluded.token_codec,"
            "  tokens = excluded.tokens",
            [
                (
                    user_id, model_id, kind, item_id, HalfVector(made.vector.tolist()),
                    made.tokens.codec if made.tokens else None,
                    made.tokens.packed if made.tokens else None,
                )
                for item_id, made in items.items()
            ],
        )  # fmt: skip


async def drop_vectors(conn: Connection, user_id: str, kind: str, item_id: str) -> None:
    """An item's text changed: its vectors are void."""
    await conn.execute(
        "DELETE FROM memory.vectors WHERE tenant_id = %(tenant)s AND user_id = %s AND kind = %s"
        " AND item_id = %s::uuid",
        (user_id, kind, item_id),
    )


_TEXTS = {
    "episode": "SELECT e.episode_id AS id, e.note AS text, e.etag AS version"
    " FROM memory.episodes AS e"
    " WHERE e.tenant_id = %(tenant)s AND e.user_id = %(user)s AND NOT EXISTS ({has} e.episode_id)"
    " ORDER BY e.event_time DESC"
    " LIMIT %(limit)s",
    "reading": "SELECT r.reading_id AS id, r.title || E'\\n' || r.summary AS text,"
    " md5(r.title || r.summary) AS version FROM memory.readings AS r"
    " WHERE r.tenant_id = %(tenant)s AND r.user_id = %(user)s AND NOT EXISTS ({has} r.reading_id)"
    " ORDER BY r.read_time DESC"
    " LIMIT %(limit)s",
    "turn": "SELECT t.turn_id AS id, (SELECT string_agg(m ->> 'text', E'\\n') FROM"
    " jsonb_array_elements(t.messages) AS m) AS text, '' AS version FROM memory.turns AS t"
    " WHERE t.tenant_id = %(tenant)s AND t.user_id = %(user)s AND NOT EXISTS ({has} t.turn_id)"
    " ORDER BY t.position DESC"
    " LIMIT %(limit)s",
}
_HAS = (
    "SELECT 1 FROM memory.vectors AS v WHERE v.tenant_id = %(tenant)s AND v.user_id = %(user)s"
    " AND v.kind = %(kind)s"
    " AND v.model_id = %(model)s AND coalesce(v.token_codec, '') = %(codec)s AND v.item_id ="
)


async def pending(
    conn: Connection, user_id: str, kind: str, model: Model, limit: int
) -> list[tuple[str, str, str]]:
    """(id, text, version) of items without vectors of this model and codec."""
    cursor = await conn.execute(
        _TEXTS[kind].format(has=_HAS),
        {
            "user": user_id,
            "kind": kind,
            "model": model.model_id,
            "codec": model.codec,
            "limit": limit,
        },
    )
    return [(str(r["id"]), r["text"] or "", r["version"]) for r in await cursor.fetchall()]


async def still_there(
    conn: Connection, user_id: str, kind: str, versions: Mapping[str, str]
) -> set[str]:
    """Of the items, those that exist with the same text version."""
    ids = list(versions)
    table = {
        "episode": "SELECT episode_id AS id, etag AS version FROM memory.episodes"
        " WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND episode_id = ANY(%s::uuid[])",
        "reading": "SELECT reading_id AS id, md5(title || summary) AS version FROM memory.readings"
        " WHERE tenant_id = %(tenant)s AND user_id = %s AND reading_id = ANY(%s::uuid[])",
        "turn": "SELECT turn_id AS id, '' AS version FROM memory.turns"
        " WHERE tenant_id = %(tenant)s AND user_id = %s"
        " AND turn_id = ANY(%s::uuid[])",
    }[kind]
    cursor = await conn.execute(table, (user_id, ids))
    return {
        str(row["id"])
        for row in await cursor.fetchall()
        if versions[str(row["id"])] == row["version"]
    }
