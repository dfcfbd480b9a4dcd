"""LoadMemory: one read transaction, one query vector, one ranking, one rendering."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from services.common import deadlines, errors
from services.common.db import Connection
from services.memory import profile, recall, rendering, selection, timex
from services.memory import readings as reading_rules
from services.memory.deps import Deps, Unbuilt
from services.memory.domain import (
    Episode,
    Fact,
    Layer,
    Summary,
    TenantSettings,
    Turn,
)
from services.memory.extraction.text import language_of
from services.memory.index import UserIndex
from services.memory.readings import ReadingHit, Shelf
from services.memory.recall import Ranked
from services.memory.selection import Left
from services.memory.store import backlog as backlog_store
from services.memory.store import facts as fact_store
from services.memory.store import summaries as summary_store
from services.memory.store import turns as turn_store
from services.memory.store import usage as usage_store
from services.memory.store.backlog import Backlog
from services.memory.threads import by_size
from services.memory.vectors import Question
from services.search.bm25 import RamIndex
from services.search.tok import query_terms

_POLL_S = 0.02


@dataclass(frozen=True)
class LoadQuery:
    """A checked LoadMemory request."""

    user_id: str
    session_id: str
    query: str
    budget: int
    at_least: int
    as_of: datetime
    layers: frozenset[Layer]
    exclude_session: bool
    max_episodes: int
    time_zone: str
    current_document_id: str


@dataclass(frozen=True)
class Loaded:
    """The answer, before it becomes a message."""

    facts: tuple[Fact, ...]
    session_summary: Summary | None
    user_summary: Summary | None
    episodes: tuple[tuple[Episode, Ranked], ...]
    turns: tuple[Turn, ...]
    readings: tuple[ReadingHit, ...]
    rendered: rendering.Rendered
    omissions: tuple[Left, ...]
    position: int
    confidence: float
    degradations: tuple[tuple[str, str, str], ...]
    """(kind, layer, message)."""
    timings: tuple[tuple[str, float], ...]


@dataclass
class _Snapshot:
    """What the read transaction saw."""

    position: int = 0
    index_version: int = 0
    time_zone: str = "UTC"
    facts: list[Fact] = field(default_factory=list)
    valid_facts: int = 0
    summaries: dict[str, Summary] = field(default_factory=dict)
    fresh: list[tuple[Turn, list[str]]] = field(default_factory=list)
    backlog: Backlog | None = None
    shelf: Shelf = field(default_factory=Shelf)
    settings: TenantSettings = field(default_factory=TenantSettings)
    exhausted: list[str] = field(default_factory=list)
    unbuilt: UserIndex | Unbuilt | None = None
    index: UserIndex | None = None


class _Clock:
    def __init__(self) -> None:
        self.steps: list[tuple[str, float]] = []
        self._at = time.perf_counter()

    def step(self, name: str) -> None:
        now = time.perf_counter()
        self.steps.append((name, (now - self._at) * 1000))
        self._at = now


async def wait_for(deps: Deps, tenant_id: str, user_id: str, position: int) -> None:
    """Wait until the database shows `position` of the user; FRESHNESS_NOT_MET after a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadlines.timeout(deps.settings.freshness_wait_s, 0.1)
    while True:
        async with deps.db.tenant(tenant_id) as conn:
            reached, _ = await turn_store.position(conn, user_id)
        if reached >= position:
            return
        if loop.time() >= until:
            raise errors.freshness_not_met(f"{reached} < {position}")
        await asyncio.sleep(_POLL_S)


async def load(deps: Deps, tenant_id: str, query: LoadQuery) -> Loaded:
    """Gather, rank and render. A layer that fails becomes a degradation, the database does not."""
    clock = _Clock()
    if query.at_least:
        await wait_for(deps, tenant_id, query.user_id, query.at_least)
        clock.step("at_least")
    degradations: list[tuple[str, str, str]] = []
    question = await _question(deps, query, degradations)
    clock.step("embed_query")
    async with deps.db.tenant(tenant_id) as conn:
        seen = await _snapshot(deps, conn, tenant_id, query, question)
        if Layer.READINGS in query.layers:
            current = query.current_document_id
            seen.shelf = await reading_rules.read(conn, query.user_id, question, current)
    clock.step("read")
    # From here on nobody waits for this connection.
    cut = await _select(deps, tenant_id, query, seen, degradations)
    reading_hits = await reading_rules.similar(seen.shelf, query.query, question, 3)
    if seen.shelf.pending:
        message = f"{seen.shelf.pending} readings have no vector yet."
        degradations.append(("pending", "readings", message))
    if "extract" in seen.exhausted:
        degradations.append(("budget", "extract", "The extraction budget of today is used up."))
    zone_name = query.time_zone or seen.time_zone
    episodes, omissions, confidence = _episodes(
        deps, query, seen, question, zone_name, degradations
    )
    size = len(query.query) + sum(len(terms) for _, terms in seen.fresh)
    turns, matched = await by_size(size, lambda: _fresh(query, seen))
    clock.step("rank")
    rendered = _render(query, seen, episodes, turns, reading_hits, zone_name)
    clock.step("render")
    return _result(
        query, seen, episodes, turns, reading_hits, rendered,
        [*cut, *omissions, *_budget_left(rendered), *_switched_off(query)],
        max(confidence, 0.5 if matched else 0.0), degradations, clock,
    )  # fmt: skip


async def _question(
    deps: Deps, query: LoadQuery, degradations: list[tuple[str, str, str]]
) -> Question | None:
    wanted = query.layers & {Layer.EPISODES, Layer.READINGS}
    if not wanted or not query.query.strip():
        return None
    try:
        return await deps.embedder.query(query.query[:4_000])
    except errors.DomainError as error:
        degradations.append(("dense", "episodes", f"No query vector: {error.reason}."))
        return None


async def _snapshot(
    deps: Deps, conn: Connection, tenant_id: str, query: LoadQuery, question: Question | None
) -> _Snapshot:
    """All reads in one round trip (pipeline mode), then the index when the cache lacks it."""
    parameters = {
        "user": query.user_id,
        "session": query.session_id,
        "sessions": [""] if query.exclude_session else ["", query.session_id],
        "as_of": query.as_of,
        "exclude": query.exclude_session,
        # One more than is looked at tells whether there are more.
        "limit": deps.settings.fresh_turns + 1,
        "facts": selection.MOST_FACTS + 1,
    }
    async with conn.pipeline():
        # All six go by primary key whatever the values are: their plans need not be made anew.
        # Citus alone has to know the tenant to plan.
        if not deps.db.citus:
            await conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        user = await conn.execute(turn_store.STATE_SQL, parameters)
        facts = await conn.execute(fact_store.CURRENT_SQL, parameters)
        summaries = await conn.execute(summary_store.LATEST_SQL, parameters)
        fresh = await conn.execute(turn_store.FRESH_SQL, parameters)
        settings = await conn.execute(usage_store.SETTINGS_SQL)
        today = await conn.execute(usage_store.TODAY_SQL)
    seen = _Snapshot()
    row: dict[str, Any] | None = await user.fetchone()
    seen.settings = usage_store.settings_of(await settings.fetchone())
    seen.exhausted = usage_store.exhausted(seen.settings.budgets, await today.fetchall())
    if row is None:
        return seen
    seen.position, seen.index_version = row["position"], row["index_version"]
    seen.time_zone = row["time_zone"]
    if Layer.PROFILE in query.layers:
        rows = await facts.fetchall()
        seen.valid_facts = len(rows)
        if len(rows) > selection.MOST_FACTS:
            many = {**parameters, "facts": selection.READ_FACTS}
            rows = await (await conn.execute(fact_store.CURRENT_SQL, many)).fetchall()
            count = await (await conn.execute(fact_store.COUNT_SQL, parameters)).fetchone()
            seen.valid_facts = count["n"] if count else len(rows)
        seen.facts = [profile.trusted(fact_store.fact_of(r)) for r in rows]
    if Layer.SUMMARY in query.layers:
        found = [summary_store.summary_of(r) for r in await summaries.fetchall()]
        seen.summaries = {s.session_id: s for s in found}
    if Layer.FRESH_TURNS in query.layers:
        seen.fresh = [(turn_store.turn_of(r), r["terms"]) for r in await fresh.fetchall()]
        if len(seen.fresh) > deps.settings.fresh_turns:
            seen.backlog = await backlog_store.read(conn, parameters, query_terms(query.query))
    if Layer.EPISODES in query.layers and query.query.strip():
        seen.unbuilt = await deps.read_index(
            conn, tenant_id, query.user_id, "episode", (seen.index_version,), question
        )
    return seen


async def _select(
    deps: Deps,
    tenant_id: str,
    query: LoadQuery,
    seen: _Snapshot,
    degradations: list[tuple[str, str, str]],
) -> list[Left]:
    """Rank facts, and keep of facts and undigested turns as many as one answer looks at; build the
    index. Returns what that leaves out. Without a connection but for the turns of a backlog."""
    seen.facts, left = await selection.facts(seen.facts, seen.valid_facts, query.query)
    cut = [left]
    if seen.backlog is not None:
        limit = deps.settings.fresh_turns
        ids, left = await selection.turns(seen.backlog, query.query, limit)
        async with deps.db.tenant(tenant_id) as conn:
            seen.fresh = await backlog_store.with_terms(conn, query.user_id, ids)
        cut.append(left)
    if seen.unbuilt is not None:
        seen.index = await deps.built(seen.unbuilt)
        cut.append(Left(Layer.EPISODES, "top_k", more=seen.index.beyond))
    cut.append(Left(Layer.READINGS, "top_k", more=seen.shelf.beyond))
    cut = [left for left in cut if left.count]
    for left in cut:
        message = f"{left.count} items are beyond what one answer looks at."
        degradations.append(("cut", left.layer.value, message))
    return cut


def _episodes(
    deps: Deps,
    query: LoadQuery,
    seen: _Snapshot,
    question: Question | None,
    zone_name: str,
    degradations: list[tuple[str, str, str]],
) -> tuple[list[tuple[Episode, Ranked]], list[Left], float]:
    index = seen.index
    if index is None or not index.items:
        return [], [], 0.0
    now = deps.now()
    scope = recall.Scope(
        exclude_session_id=query.session_id if query.exclude_session else "",
        to_time=query.as_of if query.as_of < now else None,
    )
    found = recall.search(
        query.query, question, index, recall.notes_recipe(seen.settings, query.max_episodes),
        scope, now, zone_name, seen.settings.gate,
    )  # fmt: skip
    if question is not None and index.pending:
        degradations.append(("pending", "episodes", f"{index.pending} notes have no vector yet."))
    shown, beyond = found.hits[: query.max_episodes], found.hits[query.max_episodes :]
    left = [
        Left(Layer.EPISODES, "top_k", tuple(r.item_id for r in beyond)),
        Left(Layer.EPISODES, "gate", tuple(r.item_id for r in found.below)),
    ]
    return [(index.episodes[r.item_id], r) for r in shown], left, found.confidence


def _fresh(query: LoadQuery, seen: _Snapshot) -> tuple[list[Turn], bool]:
    """Fresh turns: those that share words with the query first, then newest first."""
    turns = [turn for turn, _ in seen.fresh]
    if not turns or not query.query.strip():
        return turns, False
    index = RamIndex([t.turn_id for t in turns], [terms for _, terms in seen.fresh])
    leg = index.leg(query.query, len(turns))
    best = leg.ranked()[:3]
    by_id = {t.turn_id: t for t in turns}
    first = [by_id[i] for i in best]
    return [*first, *(t for t in turns if t.turn_id not in set(best))], bool(best)


def _render(
    query: LoadQuery,
    seen: _Snapshot,
    episodes: Sequence[tuple[Episode, Ranked]],
    turns: Sequence[Turn],
    readings: Sequence[ReadingHit],
    zone_name: str,
) -> rendering.Rendered:
    language = _language(query, seen, turns)
    zone = timex.zone_of(zone_name) or ZoneInfo("UTC")
    # Current session first, then the user: the nearer one survives a small budget.
    summaries = [
        s for s in (seen.summaries.get(query.session_id), seen.summaries.get(""))
        if s is not None
    ]  # fmt: skip
    unique = list({(s.session_id, s.version): s for s in summaries}.values())
    parts = rendering.sections(
        seen.facts, unique, [e for e, _ in episodes], turns, [h.reading for h in readings],
        zone, language,
    )  # fmt: skip
    return rendering.render(parts, query.budget, language)


def _language(query: LoadQuery, seen: _Snapshot, turns: Sequence[Turn]) -> str:
    if query.query.strip():
        return language_of(query.query)
    if turns:
        return language_of(turns[0].text)
    return seen.facts[0].language if seen.facts else "en"


def _budget_left(rendered: rendering.Rendered) -> list[Left]:
    return [Left(layer, "budget", tuple(ids)) for layer, ids in rendered.left_out.items()]


def _switched_off(query: LoadQuery) -> list[Left]:
    return [
        Left(layer, "off")
        for layer in Layer
        if layer not in query.layers and layer is not Layer.READINGS
    ]


def _result(
    query: LoadQuery,
    seen: _Snapshot,
    episodes: Sequence[tuple[Episode, Ranked]],
    turns: Sequence[Turn],
    readings: Sequence[ReadingHit],
    rendered: rendering.Rendered,
    omissions: Sequence[Left],
    confidence: float,
    degradations: Sequence[tuple[str, str, str]],
    clock: _Clock,
) -> Loaded:
    shown = {i for block in rendered.blocks for i in block.item_ids}
    facts = [f for f in seen.facts if f.fact_id in shown]
    return Loaded(
        facts=tuple(facts),
        session_summary=seen.summaries.get(query.session_id) if query.session_id else None,
        user_summary=seen.summaries.get(""),
        episodes=tuple((e, r) for e, r in episodes if e.episode_id in shown),
        turns=tuple(t for t in turns if t.turn_id in shown),
        readings=tuple(readings),
        rendered=rendered,
        omissions=tuple(o for o in omissions if o.count or o.reason == "off"),
        position=seen.position,
        confidence=confidence,
        degradations=tuple(degradations),
        timings=tuple(clock.steps),
    )
