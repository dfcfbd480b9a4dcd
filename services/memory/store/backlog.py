"""SQL of undigested turns where there are more than one answer looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.common.db import Connection
from services.memory.domain import Turn
from services.memory.store import turns as turn_store

_READ = 5_000
_UNDIGESTED = (
    " t.tenant_id = %(tenant)s AND t.user_id = %(user)s"
    " AND t.digest_state <> 'done' AND t.event_time <= %(as_of)s"
    " AND (NOT %(exclude)s OR t.session_id <> %(session)s)"
)


@dataclass(frozen=True)
class Backlog:
    """Undigested turns, newest first: `matched` (id, terms) share words with the query, `waiting`
    and `given_up` are ids; `total` is how many there are."""

    matched: Sequence[tuple[str, list[str]]]
    waiting: Sequence[str]
    given_up: Sequence[str]
    total: int


async def read(conn: Connection, parameters: Mapping[str, Any], terms: Sequence[str]) -> Backlog:
    """What FRESH_SQL, with the same parameters, sees the newest of; at most 5,000 of each."""
    wide = {**parameters, "terms": list(terms), "limit": _READ}
    cursor = await conn.execute(
        "SELECT t.turn_id, l.terms FROM memory.turns AS t"
        " JOIN memory.lexical AS l ON l.tenant_id = %(tenant)s AND l.user_id = t.user_id"
        "  AND l.kind = 'turn' AND l.item_id = t.turn_id"
        f" WHERE {_UNDIGESTED} AND l.terms && %(terms)s::text[]"
        " ORDER BY t.position DESC LIMIT %(limit)s",
        wide,
    )
    matched = [(str(row["turn_id"]), row["terms"]) for row in await cursor.fetchall()]
    cursor = await conn.execute(
        "SELECT t.turn_id, t.digest_state = 'quarantined' AS given_up, count(*) OVER () AS total"
        f" FROM memory.turns AS t WHERE {_UNDIGESTED} ORDER BY t.position DESC LIMIT %(limit)s",
        wide,
    )
    rows = await cursor.fetchall()
    return Backlog(
        matched,
        [str(row["turn_id"]) for row in rows if not row["given_up"]],
        [str(row["turn_id"]) for row in rows if row["given_up"]],
        rows[0]["total"] if rows else 0,
    )


async def with_terms(
    conn: Connection, user_id: str, turn_ids: Sequence[str]
) -> list[tuple[Turn, list[str]]]:
    """These turns with their terms, as far as they are still there, newest first."""
    cursor = await conn.execute(
        "SELECT item_id, terms FROM memory.lexical WHERE tenant_id = %(tenant)s"
        " AND user_id = %s AND kind = 'turn' AND item_id = ANY(%s::uuid[])",
        (user_id, list(turn_ids)),
    )
    terms = {str(row["item_id"]): row["terms"] for row in await cursor.fetchall()}
    turns = await turn_store.get(conn, user_id, turn_ids)
    turns.sort(key=lambda t: -t.position)
    return [(turn, terms.get(turn.turn_id, [])) for turn in turns]
