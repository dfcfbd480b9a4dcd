"""Export and import of a user as JSON lines: exact round trip, importing twice changes nothing.

Lines hold no user id, so that an export can be imported for another one. Vectors and lexical
entries are not exported: they are made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from services.common import errors
from services.common.db import Connection
from services.memory import records, rekey
from services.memory.deps import Deps
from services.memory.records import Record
from services.memory.store import transfer as store
from services.memory.store import turns as turn_store
from services.search import TOK_VERSION

TYPES: Final = tuple(store.TABLES)
_FORMAT: Final = "nianlun.memory.export"
_VERSION: Final = 1
_INSERT_CHARACTERS: Final = 256 * 1024
_SEARCHED: Final = {"turns": "turn", "episodes": "episode"}


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
    header = {"type": "header", "format": _FORMAT, "version": _VERSION}
    return [_line(header), *lines] if lines else []


def parse(lines: Sequence[str]) -> list[Record]:
    """Every line, checked and ready to be stored. INVALID_ARGUMENT names the line.

    Takes seconds for a large import: run it in a thread, before the transaction.
    """
    found: list[Record] = []
    for number, line in enumerate(lines):
        one = records.parse(line, f"lines[{number}]")
        if isinstance(one, Record):
            found.append(one)
        elif (one.format, one.version) != (_FORMAT, _VERSION):
            raise errors.invalid_argument(f"lines[{number}]", "is of another format or version")
    return found


async def restore(
    deps: Deps, conn: Connection, tenant_id: str, user_id: str, found: Sequence[Record]
) -> Counts:
    """Insert what is not there yet, and queue what has to be made anew."""
    await turn_store.ensure_user(conn, user_id)
    counts = Counts()
    # Imported rows have the keys of today: what is there already must have them too.
    await rekey.facts(conn, user_id)
    await rekey.notes(conn, user_id)
    for kind in TYPES:
        mine = [record.columns for record in found if record.kind == kind]
        if mine:
            await store.drop_loose(conn, kind, user_id)
        try:
            inserted = 0
            for some in _portions(mine):
                inserted += await store.insert(conn, kind, user_id, some)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise errors.invalid_argument("lines", f"hold values that do not fit {kind}") from error
        if inserted:
            # Of a fact or a note that says what another says already, the other stays.
            inserted -= await store.drop_loose(conn, kind, user_id)
        if inserted:
            counts.stored[kind] = inserted
        counts.skipped += len(mine) - inserted
    await _renew(deps, conn, tenant_id, user_id, found)
    return counts


def _portions(rows: Sequence[str]) -> Iterator[list[str]]:
    """Rows by the statement: none so large that putting it together holds up other calls."""
    some: list[str] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row)
        if size >= _INSERT_CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some


async def _renew(
    deps: Deps, conn: Connection, tenant_id: str, user_id: str, found: Sequence[Record]
) -> None:
    """Positions and sessions, lexical entries, digestion of fresh turns, vectors."""
    await turn_store.catch_up(conn, user_id)
    terms = {(_SEARCHED[r.kind], r.item_id): r.terms for r in found if r.kind in _SEARCHED}
    lacking = [key for key in await store.without_terms(conn, user_id) if key in terms]
    await store.put_terms(
        conn, user_id, TOK_VERSION, [(kind, i, terms[kind, i]) for kind, i in lacking]
    )
    await turn_store.bump_index(conn, user_id)
    for session_id in await store.fresh_sessions(conn, user_id):
        await deps.enqueue_session(conn, "digest", tenant_id, user_id, session_id)
    await deps.enqueue_embed(conn, tenant_id, user_id)
