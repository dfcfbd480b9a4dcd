"""Write an extraction: facts meet the profile, notes meet the notes, inside one transaction.

The caller holds the user's row lock. Whatever rests on a turn that is no longer there is dropped:
an erasure that came first has won.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from services.common.db import Connection
from services.memory import profile, rekey
from services.memory.domain import Candidate, Extraction, Fact, Note, Source
from services.memory.keys import note_key, value_key
from services.memory.profile import note_tombstones, tombstone_hash, user_hash, value_tombstones
from services.memory.store import episodes as episode_store
from services.memory.store import facts as fact_store
from services.search import TOK_VERSION, tokenize


@dataclass(frozen=True)
class Applied:
    """What an extraction changed."""

    facts: int = 0
    merged: int = 0
    notes: int = 0
    buried: int = 0


async def apply(
    conn: Connection, tenant_id: str, user_id: str, extraction: Extraction, alive: set[str]
) -> Applied:
    """Write what rests on turns in `alive`. Returns counts."""
    candidates = [c for c in extraction.candidates if c.turn_id in alive]
    candidates.sort(key=lambda c: (c.event_time, c.turn_id))
    facts = merged = notes = buried = 0
    killed = await _tombstones(conn, tenant_id, user_id, candidates, extraction.notes)
    for candidate in candidates:
        stones = fact_hashes(tenant_id, user_id, candidate.attribute, candidate.value)
        if _buried(candidate.event_time, stones, killed):
            buried += 1
        elif await put_fact(conn, user_id, candidate):
            facts += 1
        else:
            merged += 1
    if extraction.notes:
        await rekey.notes(conn, user_id)
    for note in extraction.notes:
        kept = _alive_note(note, alive, killed, tenant_id, user_id)
        if kept is None:
            buried += 1
            continue
        await put_note(conn, user_id, kept)
        notes += 1
    return Applied(facts, merged, notes, buried)


def fact_hash(tenant_id: str, user_id: str, attribute: str, value: str) -> str:
    """Tombstone hash of an attribute's value, to leave one."""
    return fact_hashes(tenant_id, user_id, attribute, value)[0]


def fact_hashes(tenant_id: str, user_id: str, attribute: str, value: str) -> list[str]:
    """Tombstone hashes under which an attribute's value may lie buried."""
    return [
        stone
        for name in profile.stored_names(attribute)
        for stone in value_tombstones(tenant_id, user_id, f"fact:{name}", value)
    ]


def note_hashes(tenant_id: str, user_id: str, note: str, turn_ids: Sequence[str]) -> list[str]:
    """Tombstone hashes of a note, to leave them: its text, and each turn it was made from."""
    return [
        note_tombstones(tenant_id, user_id, note)[0],
        *_turn_hashes(tenant_id, user_id, turn_ids),
    ]


def _turn_hashes(tenant_id: str, user_id: str, turn_ids: Sequence[str]) -> list[str]:
    return [tombstone_hash(tenant_id, user_id, "note_of_turn", t) for t in turn_ids]


def _buried(event_time: datetime, hashes: Sequence[str], killed: dict[str, datetime]) -> bool:
    """Whether a tombstone for one of `hashes` was left at `event_time` or later."""
    return any(h in killed and event_time <= killed[h] for h in hashes)


async def _tombstones(
    conn: Connection,
    tenant_id: str,
    user_id: str,
    candidates: Sequence[Candidate],
    notes: Sequence[Note],
) -> dict[str, datetime]:
    hashes = [h for c in candidates for h in fact_hashes(tenant_id, user_id, c.attribute, c.value)]
    for note in notes:
        hashes += note_tombstones(tenant_id, user_id, note.note)
        hashes += _turn_hashes(tenant_id, user_id, [s.turn_id for s in note.sources])
    if not hashes:
        return {}
    return await fact_store.tombstoned(conn, user_hash(tenant_id, user_id), hashes)


def _alive_note(
    note: Note, alive: set[str], killed: dict[str, datetime], tenant_id: str, user_id: str
) -> Note | None:
    """The note with the sources that are left; None when none is or it was deleted before."""
    turns = [s.turn_id for s in note.sources]
    if any(h in killed for h in _turn_hashes(tenant_id, user_id, turns)):
        return None
    stones = note_tombstones(tenant_id, user_id, note.note)
    if _buried(note.event_time, stones, killed):
        return None
    sources = tuple(s for s in note.sources if s.turn_id in alive)
    # A note over several turns of which one is gone may tell what that one said.
    return replace(note, sources=sources) if len(sources) == len(note.sources) else None


async def facts_of(conn: Connection, user_id: str, attribute: str) -> list[Fact]:
    """Believed records of an attribute, under the names and keys of today: those stored by earlier
    versions are given theirs."""
    names = profile.stored_names(attribute)
    found = await fact_store.timeline(conn, user_id, names)
    if all(f.attribute == attribute and f.value_key == value_key(f.value) for f in found):
        return found
    await rekey.facts(conn, user_id, names)
    return await fact_store.timeline(conn, user_id, [attribute])


async def put_fact(conn: Connection, user_id: str, candidate: Candidate) -> bool:
    """Let a candidate change the profile; True when a new record was added."""
    timeline = await facts_of(conn, user_id, candidate.attribute)
    other = profile.opposite(candidate.attribute)
    opposites = await facts_of(conn, user_id, other) if other else []
    plan = profile.plan(candidate, timeline, opposites)
    for close in plan.closes:
        await fact_store.close(conn, user_id, close.fact_id, close.valid_to, close.state)
    if plan.resume is not None:
        await fact_store.split(conn, user_id, plan.resume)
    source = Source(candidate.turn_id, candidate.session_id, candidate.quote, candidate.event_time)
    if plan.merge_into is not None:
        if plan.earlier_start is not None:
            await fact_store.start_earlier(conn, user_id, plan.merge_into, plan.earlier_start)
        if candidate.turn_id:
            await fact_store.add_source(conn, user_id, plan.merge_into, source)
        return False
    if plan.insert is None:
        return False
    fact_id = await fact_store.insert(
        conn, user_id, candidate, value_key(candidate.value),
        profile.cardinality_of(candidate.attribute, candidate.cardinality),
        plan.insert.state, plan.insert.valid_from, plan.insert.valid_to,
    )  # fmt: skip
    if candidate.turn_id:
        await fact_store.add_source(conn, user_id, fact_id, source)
    return True


async def put_note(conn: Connection, user_id: str, note: Note) -> str:
    """Add a note, or give a note that says the same its sources; returns the note's id.

    Notes that differ in one word mean something else (Thursday is not Wednesday): both are kept.
    """
    new_id = str(uuid.uuid4())
    episode_id = await episode_store.insert(conn, user_id, note, note_key(note.note), new_id)
    if episode_id == new_id:
        terms = note_terms(note)
        await episode_store.set_terms(conn, user_id, "episode", new_id, TOK_VERSION, terms)
    for source in note.sources:
        await episode_store.add_source(conn, user_id, episode_id, source)
    return episode_id


def note_terms(note: Note) -> list[str]:
    """Terms under which a note is found: its words, its day, the days it is about."""
    days = f"{note.event_time:%Y-%m-%d}"
    if note.about_from is not None:
        days += f" {note.about_from:%Y-%m-%d}"
    return tokenize(f"{note.note}\n{days}")
