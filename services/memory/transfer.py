"""Export and import of a user as JSON lines: exact round trip, importing twice changes nothing.

Lines hold no user id, so that an export can be imported for another one. Vectors and lexical
entries are not exported: they are made anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from services.common import errors
from services.common.db import Connection
from services.memory import safety
from services.memory.deps import Deps
from services.memory.store import episodes as episode_store
from services.memory.store import transfer as store
from services.memory.store import turns as turn_store
from services.search import TOK_VERSION, tokenize

TYPES: Final = tuple(store.TABLES)
_HEADER: Final = {"format": "nianlun.memory.export", "version": 1}

Record = tuple[int, str, dict[str, Any]]
"""Line number, type, columns."""


@dataclass
class Counts:
    """Records stored per type, and those that were there already."""

    stored: dict[str, int] = field(default_factory=dict)
    skipped: int = 0


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


async def export(conn: Connection, user_id: str) -> list[str]:
    """All lines of a user, in a stable order, the header first; [] for an unknown user."""
    lines: list[str] = []
    for kind in TYPES:
        lines += [_line({"type": kind, **row}) for row in await store.rows(conn, kind, user_id)]
    return [_line({"type": "header", **_HEADER}), *lines] if lines else []


def parse(lines: Sequence[str]) -> list[Record]:
    """Every line, checked as far as that needs no database. INVALID_ARGUMENT names the line."""
    records: list[Record] = []
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
        except ValueError:
            raise errors.invalid_argument(f"lines[{number}]", "is not JSON") from None
        kind = record.pop("type", None) if isinstance(record, dict) else None
        if kind == "header":
            if record != _HEADER:
                raise errors.invalid_argument(f"lines[{number}]", "is of another format or version")
            continue
        if kind not in TYPES:
            raise errors.invalid_argument(f"lines[{number}]", "has no known type")
        records.append((number, kind, _checked(number, kind, record)))
    return records


def _checked(number: int, kind: str, record: dict[str, Any]) -> dict[str, Any]:
    """The record with personal data out; instructions as facts or notes are refused."""
    if kind == "turns":
        messages = record.get("messages")
        if not isinstance(messages, list) or not all(
            isinstance(m, dict) and isinstance(m.get("text"), str) and "role" in m for m in messages
        ):
            raise errors.invalid_argument(f"lines[{number}]", "has no messages")
        redacted = [{**m, "text": safety.redact(m["text"]).text} for m in messages]
        return {**record, "messages": redacted}
    told = [record.get(name) for name in ("value", "statement", "note")]
    if any(isinstance(text, str) and safety.is_injection(text) for text in told):
        raise errors.invalid_argument(f"lines[{number}]", "holds an instruction to the system")
    return record


async def restore(
    deps: Deps, conn: Connection, tenant_id: str, user_id: str, records: Sequence[Record]
) -> Counts:
    """Insert what is not there yet, and queue what has to be made anew."""
    columns = await store.columns(conn)
    for number, kind, record in records:
        if set(record) != columns[kind]:
            raise errors.invalid_argument(f"lines[{number}]", "has unknown or missing fields")
    await turn_store.ensure_user(conn, user_id)
    counts = Counts()
    for kind in TYPES:
        mine = [record for _, k, record in records if k == kind]
        try:
            inserted = await store.insert(conn, kind, user_id, mine)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise errors.invalid_argument("lines", f"hold values that do not fit {kind}") from error
        if inserted:
            counts.stored[kind] = inserted
        counts.skipped += len(mine) - inserted
    await _renew(deps, conn, tenant_id, user_id)
    return counts


async def _renew(deps: Deps, conn: Connection, tenant_id: str, user_id: str) -> None:
    """Position, lexical entries, digestion of fresh turns, vectors."""
    await turn_store.catch_up(conn, user_id)
    for kind, item_id, text in await store.without_terms(conn, user_id):
        terms = tokenize(text)
        await episode_store.set_terms(conn, user_id, kind, item_id, TOK_VERSION, terms)
    await turn_store.bump_index(conn, user_id)
    for session_id in await store.fresh_sessions(conn, user_id):
        await deps.enqueue_session(conn, "digest", tenant_id, user_id, session_id)
    await deps.enqueue_embed(conn, tenant_id, user_id)
