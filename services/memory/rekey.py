"""What earlier versions stored under other keys, under the keys of today.

It is done where a user's records are written, so that an upgrade needs no pass over all users and
two versions can run side by side. Records that come to say the same become one. The caller holds
the user's row lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from services.common.db import Connection
from services.memory.domain import FactState, Origin
from services.memory.keys import value_key
from services.memory.store import keyed as store

_Row = dict[str, Any]


async def facts(
    conn: Connection, user_id: str, attributes: Sequence[str] | None = None, keep: str = ""
) -> bool:
    """Give every record of some attributes (None: of all), whatever its state, the key of its
    value; whether any had another. Of several active ones of a value `keep` stays, else one of the
    caller's, else the oldest."""
    rows = await store.facts(conn, user_id, attributes)
    keys = {row["fact_id"]: value_key(row["value"]) for row in rows}
    stale = [row for row in rows if keys[row["fact_id"]] != row["value_key"]]
    if not stale:
        return False
    active = [row for row in rows if row["state"] == FactState.ACTIVE.value]
    for same in _several(active, lambda row: (row["attribute"], keys[row["fact_id"]])):
        first, *others = sorted(same, key=lambda row: _rank(row, row["fact_id"], keep))
        start = min(row["valid_from"] for row in same)
        gone = [row["fact_id"] for row in others]
        await store.merge_facts(conn, user_id, first["fact_id"], gone, start)
    wanted = [(row["fact_id"], keys[row["fact_id"]]) for row in stale]
    if not {row["value_key"] for row in stale}.isdisjoint(key for _, key in wanted):
        # What is to be the key of one is still the key of another.
        await store.set_fact_keys(conn, user_id, [(i, str(i)) for i, _ in wanted])
    await store.set_fact_keys(conn, user_id, wanted)
    return True


def _several(rows: Sequence[_Row], key: Callable[[_Row], Hashable]) -> list[list[_Row]]:
    """The rows of each key that more than one has."""
    found: dict[Hashable, list[_Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return [same for same in found.values() if len(same) > 1]


def _rank(row: _Row, row_id: object, keep: str) -> tuple[bool, bool]:
    return str(row_id) != keep, row["origin"] != Origin.CALLER.value
