"""What earlier versions stored under other keys, under the keys of today.

It is done where a user's records are written, so that an upgrade needs no pass over all users and
two versions can run side by side. Records that come to say the same become one. The caller holds
the user's row lock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, Final

from services.common.db import Connection
from services.memory import profile
from services.memory.domain import Cardinality, FactKind, FactState, Origin
from services.memory.keys import note_key, value_key
from services.memory.store import erase as erase_store
from services.memory.store import facts as fact_store
from services.memory.store import keyed as store

_PORTION: Final = 500
_Row = dict[str, Any]


async def facts(
    conn: Connection, user_id: str, names: Sequence[str] | None = None, keep: str = ""
) -> bool:
    """Give every record of the attributes of these names (None: of all), whatever its state, its
    registered attribute and the key of its value; whether any had another. Of several active ones
    of a value `keep` stays, else one of the caller's, else the oldest."""
    rows = await store.facts(conn, user_id, names)
    stale = [row for row in rows if _today(row) != (row["attribute"], row["value_key"])]
    if not stale:
        return False
    active = [row for row in rows if row["state"] == FactState.ACTIVE.value]
    gone: set[Any] = set()
    for same in _several(active, _today):
        first, *others = sorted(same, key=lambda row: _rank(row, row["fact_id"], keep))
        start = min(row["valid_from"] for row in same)
        merged = [row["fact_id"] for row in others]
        await store.merge_facts(conn, user_id, first["fact_id"], merged, start)
        first["valid_from"] = start
        gone.update(merged)
    stale = [row for row in stale if row["fact_id"] not in gone]
    # Two active ones never have one key, not even meanwhile: the new one may be another's old one.
    await store.set_fact_keys(conn, user_id, [(r["fact_id"], str(r["fact_id"])) for r in stale])
    renamed = {_today(row)[0] for row in stale if _today(row)[0] != row["attribute"]}
    for attribute in sorted(renamed):
        await _rename(conn, user_id, attribute, stale)
        await _one_at_a_time(
            conn, user_id, attribute, [row for row in active if row["fact_id"] not in gone]
        )
    await store.set_fact_keys(conn, user_id, [(r["fact_id"], _today(r)[1]) for r in stale])
    return True


async def notes(conn: Connection, user_id: str, keep: str = "") -> bool:
    """Give every note of a user its key; whether any had another. Of several that say the same
    `keep` stays, else one of the caller's, else the oldest."""
    changed = False
    while stale := await store.old_notes(conn, user_id, _PORTION):
        changed = True
        keys = {row["episode_id"]: note_key(row["note"]) for row in stale}
        there = await store.notes_of_keys(conn, user_id, sorted(set(keys.values())))
        keys |= {row["episode_id"]: row["note_key"] for row in there}
        gone: set[Any] = set()
        rows = [{**row, "key": keys[row["episode_id"]]} for row in (*there, *stale)]
        for same in _several(rows, lambda row: str(row["key"])):
            first, *others = sorted(same, key=lambda row: _rank(row, row["episode_id"], keep))
            last = max(row["event_time"] for row in same)
            merged = [row["episode_id"] for row in others]
            await store.merge_notes(conn, user_id, first["episode_id"], merged, last)
            await erase_store.episodes(conn, user_id, merged, erase_store.Removed())
            gone.update(merged)
        left = [row["episode_id"] for row in stale if row["episode_id"] not in gone]
        await store.set_note_keys(conn, user_id, [(one, keys[one]) for one in left])
    return changed


async def _rename(conn: Connection, user_id: str, attribute: str, rows: Sequence[_Row]) -> None:
    """Those of the rows that are of `attribute` bear its name, and are what its records are."""
    for stored in Cardinality:
        kinds = [
            (
                row["fact_id"],
                profile.kind_of(
                    attribute, FactKind(row["kind"]), row["value"], row["statement"]
                ).value,
            )
            for row in rows
            if _today(row)[0] == attribute and row["cardinality"] == stored.value
        ]
        cardinality = profile.cardinality_of(attribute, stored).value
        await store.rename_facts(conn, user_id, attribute, cardinality, kinds)


async def _one_at_a_time(
    conn: Connection, user_id: str, attribute: str, active: Sequence[_Row]
) -> None:
    """Where an attribute has one value at a time, each ends when the next begins."""
    if profile.cardinality_of(attribute) is not Cardinality.ONE:
        return
    mine = sorted(
        (row for row in active if _today(row)[0] == attribute), key=lambda row: row["valid_from"]
    )
    for row, after in pairwise(mine):
        await fact_store.close(
            conn, user_id, str(row["fact_id"]), after["valid_from"], FactState.SUPERSEDED
        )


def _today(row: _Row) -> tuple[str, str]:
    """The attribute and the key of a record."""
    return profile.attribute_key(row["attribute"]), value_key(row["value"])


def _several(rows: Sequence[_Row], key: Callable[[_Row], Hashable]) -> list[list[_Row]]:
    """The rows of each key that more than one has."""
    found: dict[Hashable, list[_Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return [same for same in found.values() if len(same) > 1]


def _rank(row: _Row, row_id: object, keep: str) -> tuple[bool, bool]:
    return str(row_id) != keep, row["origin"] != Origin.CALLER.value
