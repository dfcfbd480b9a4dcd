"""Ranking of a user's notes and turns with the shared search engine, and the gate over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from services.memory import relevance, timex
from services.memory.domain import TenantSettings
from services.memory.embedding import model_name
from services.memory.extraction.text import language_of
from services.memory.index import UserIndex
from services.search import calibration as calibrations
from services.search import dense, engine, gate, phrase
from services.search.calibration import Calibration
from services.search.recipes import RECIPES, Propagation, Recipe
from services.search.types import FloatArray, Hit, Leg, LegResult, LegState

IN_WINDOW: Final = 0.25
"""Added to the fused score of an item from the time that the question names."""


@dataclass(frozen=True)
class Scope:
    """Which items may be found. Empty strings and None mean no limit."""

    session_id: str = ""
    exclude_session_id: str = ""
    from_time: datetime | None = None
    to_time: datetime | None = None


@dataclass(frozen=True)
class Ranked:
    """One item with the account of its score: score = relevance x decay."""

    item_id: str
    score: float
    relevance: float
    decay: float
    probability: float
    hit: Hit


@dataclass(frozen=True)
class Recall:
    """What was found: `hits` passed the gate, best first; `below` matched but did not."""

    hits: tuple[Ranked, ...] = ()
    below: tuple[Ranked, ...] = ()
    confidence: float = 0.0


def calibration_of(model_id: str) -> Calibration:
    """The model's calibration, or that of the default model where it has none."""
    shipped = calibrations.shipped(model_name(model_id))
    return shipped or calibrations.SHIPPED[calibrations.DEFAULT_MODEL]


def notes_recipe(settings: TenantSettings, top_k: int) -> Recipe:
    """Notes stand alone: no neighbours; decay as the tenant wants it."""
    return replace(
        RECIPES["conversation"],
        propagation=Propagation(),
        top_k=top_k,
        half_life_days=settings.half_life_days,
        decay_floor=settings.decay_floor,
        gate=False,
    )


def turns_recipe(top_k: int) -> Recipe:
    """Turns borrow from their neighbours and session."""
    return replace(RECIPES["conversation"], top_k=top_k, gate=False)


def search(
    query: str,
    vector: FloatArray | None,
    index: UserIndex,
    recipe: Recipe,
    scope: Scope,
    now: datetime,
    time_zone: str,
    gate_at: float | None,
) -> Recall:
    """Rank `index` for `query`. `vector` None: the dense leg is skipped."""
    if not index.items or not query.strip():
        return Recall()
    among = _among(index, scope)
    if among is not None and not among:
        return Recall()
    calibration = calibration_of(index.model_id)
    legs = _legs(query, vector, index, recipe.leg_k, among)
    wide = replace(recipe, top_k=max(recipe.top_k * 4, 20))
    ranking = engine.search(query, legs, index.items, wide, calibration, now=now)
    windows = _windows(query, now, time_zone)
    asked_in = language_of(query)
    ranked = [_ranked(hit, index, windows, calibration, asked_in) for hit in ranking.hits]
    ranked.sort(key=lambda r: (-r.score, r.item_id))
    threshold = relevance.GATE if gate_at is None else gate_at
    embedded = frozenset() if vector is None else frozenset(index.vector_ids)
    passed = [r for r in ranked if r.probability >= threshold or _unjudged(r, embedded)]
    let_in = {r.item_id for r in passed}
    below = [r for r in ranked if r.item_id not in let_in]
    confidence = max((r.probability for r in ranked), default=0.0)
    return Recall(tuple(passed), tuple(below), confidence)


def _unjudged(ranked: Ranked, embedded: frozenset[str]) -> bool:
    """Whether words match while nothing is known of the meaning: no vector yet, or none to ask
    with.

    The gate is calibrated for both legs together; to hold such an item back would forget, for the
    seconds until its vector is there, what the user has just said.
    """
    lexical = ranked.hit.votes.get(Leg.LEXICAL)
    return ranked.item_id not in embedded and lexical is not None and lexical.score > 0.0


def _among(index: UserIndex, scope: Scope) -> frozenset[str] | None:
    if scope == Scope():
        return None

    def allowed(item_id: str) -> bool:
        item = index.items[item_id]
        if scope.session_id and item.group != scope.session_id:
            return False
        if scope.exclude_session_id and item.group == scope.exclude_session_id:
            return False
        when = item.time
        if when is None:
            return True
        if scope.from_time is not None and when < scope.from_time:
            return False
        return scope.to_time is None or when < scope.to_time

    return frozenset(i for i in index.items if allowed(i))


def _legs(
    query: str,
    vector: FloatArray | None,
    index: UserIndex,
    k: int,
    among: frozenset[str] | None,
) -> list[LegResult]:
    lexical = index.bm25.leg(query, k, among)
    semantic = _dense(vector, index, k, among, set(lexical.scores))
    if semantic.scores:
        missing = [i for i in semantic.scores if i not in lexical.scores]
        lexical = index.bm25.leg(query, k, among, missing)
    pool = {*lexical.scores, *semantic.scores}
    exact = phrase.leg(query, {i: index.haystacks[i] for i in pool}, k)
    return [semantic, lexical, exact]


def _dense(
    vector: FloatArray | None,
    index: UserIndex,
    k: int,
    among: frozenset[str] | None,
    others: set[str],
) -> LegResult:
    if vector is None:
        return LegResult(Leg.DENSE, state=LegState.FAILED, reason="no query vector")
    if not index.vector_ids or index.vectors.shape[1] != vector.shape[0]:
        return LegResult(Leg.DENSE, state=LegState.SKIPPED, reason="nothing embedded")
    rows = [n for n, i in enumerate(index.vector_ids) if among is None or i in among]
    ids = [index.vector_ids[n] for n in rows]
    if not ids:
        return LegResult(Leg.DENSE, state=LegState.SKIPPED, reason="nothing embedded")
    kept = index.vectors if len(rows) == len(index.vector_ids) else index.vectors[np.array(rows)]
    leg = dense.leg(vector, ids, kept, k)
    row_of = {i: n for n, i in enumerate(ids)}
    extra = {
        i: float(np.dot(kept[row_of[i]], vector))
        for i in others
        if i in row_of and i not in leg.scores
    }
    return replace(leg, extra=extra)


def _windows(query: str, now: datetime, time_zone: str) -> list[tuple[datetime, datetime]]:
    """Times that the question names; "today" alone says nothing about which memory is meant."""
    return [
        (span.start, span.end)
        for span in timex.resolve(query, now, time_zone)
        if span.end - span.start < timedelta(days=400)
    ]


def _ranked(
    hit: Hit,
    index: UserIndex,
    windows: Sequence[tuple[datetime, datetime]],
    calibration: Calibration,
    asked_in: str,
) -> Ranked:
    dense_vote, lexical, exact = (
        hit.votes.get(leg) for leg in (Leg.DENSE, Leg.LEXICAL, Leg.PHRASE)
    )
    evidence = gate.Evidence(
        dense_vote.score if dense_vote else None,
        lexical.calibrated if lexical else None,
        exact.score if exact else None,
        None,
    )
    told_in = language_of(index.items[hit.id].text)
    probability = relevance.probability(evidence, calibration, asked_in, told_in)
    strength = hit.score / (hit.decay or 1.0)
    if windows and _in_window(hit.id, index, windows):
        strength += IN_WINDOW
        probability = min(1.0, probability + IN_WINDOW)
    return Ranked(hit.id, strength * hit.decay, strength, hit.decay, probability, hit)


def _in_window(
    item_id: str, index: UserIndex, windows: Sequence[tuple[datetime, datetime]]
) -> bool:
    episode = index.episodes.get(item_id)
    when = index.items[item_id].time
    for start, end in windows:
        if when is not None and start <= when < end:
            return True
        about = (episode.about_from, episode.about_to) if episode is not None else (None, None)
        if about[0] and about[1] and about[0] < end and start < about[1]:
            return True
    return False
