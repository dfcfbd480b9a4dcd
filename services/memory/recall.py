"""Ranking of a user's notes and turns with the shared search engine, and the gate over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from services.memory import timex
from services.memory.asking import asks_back
from services.memory.domain import TenantSettings
from services.memory.embedding import model_name
from services.memory.index import UserIndex
from services.memory.vectors import Question
from services.search import calibration as calibrations
from services.search import dense, engine, gate, late, phrase
from services.search.calibration import Calibration
from services.search.recipes import RECIPES, Propagation, Recipe
from services.search.types import FloatArray, Hit, Leg, LegResult, LegState, RerankResult

GATE: Final = 0.7
"""Default threshold of the probability that an item is about the question; a tenant may set its
own. On the development halves it keeps 0.98 of the right turns (0.86 of Chinese diaries) and lets
0.15 of the questions asked of somebody else's conversations through (0.44 of diaries, which are all
alike): a line too many says of itself "only if relevant"."""
_EXACT: Final = 0.9
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
    question: Question | None,
    index: UserIndex,
    recipe: Recipe,
    scope: Scope,
    now: datetime,
    time_zone: str,
    gate_at: float | None,
) -> Recall:
    """Rank `index` for `query`. `question` None: words decide alone."""
    if not index.items or not query.strip():
        return Recall()
    among = _among(index, scope)
    if among is not None and not among:
        return Recall()
    calibration = calibration_of(index.model_id)
    vector = question.vector if question is not None else None
    legs = _legs(query, vector, index, recipe.leg_k, among)
    wide = replace(recipe, top_k=max(recipe.top_k * 4, 20))
    fused = engine.fuse(query, legs, index.items, wide, calibration)
    late_scores = _late(question, index, fused.head)
    # A note that was said a second ago has no token vectors: it must not fall behind all that
    # were scored.
    whole = wide.rerank and bool(late_scores) and len(late_scores) == len(fused.head)
    reranked = RerankResult(late_scores, absolute=True) if whole else None
    ranking = engine.finish(fused, reranked, now)
    windows = _windows(query, now, time_zone)
    judge = _Judge(fused, index, late_scores, index.bm25.held(query), windows, now)
    ranked = [judge.ranked(hit) for hit in ranking.hits]
    ranked.sort(key=lambda r: (-r.score, r.item_id))
    threshold = GATE if gate_at is None else gate_at
    known = _judgeable(question, index)
    passed = [r for r in ranked if r.probability >= threshold or _unjudged(r, known)]
    if not passed and asks_back(query):
        # The best there is, with the low probability that it has.
        passed = ranked[:1]
    let_in = {r.item_id for r in passed}
    below = [r for r in ranked if r.item_id not in let_in]
    confidence = max((r.probability for r in ranked), default=0.0)
    return Recall(tuple(passed), tuple(below), confidence)


def _late(question: Question | None, index: UserIndex, head: Sequence[str]) -> dict[str, float]:
    """Late interaction over those of the head that have token vectors."""
    if question is None or question.tokens is None:
        return {}
    ids = [i for i in head if index.codecs.get(i) == question.codec]
    dimensions = question.tokens.shape[1]
    rows = [late.dequantise(index.items[i].tokens or b"", dimensions) for i in ids]
    scores = late.max_sim(question.tokens, rows)
    return dict(zip(ids, map(float, scores), strict=True))


def _judgeable(question: Question | None, index: UserIndex) -> frozenset[str]:
    """Items of which all is known that the gate looks at."""
    if question is None:
        return frozenset()
    if question.tokens is None:
        return frozenset(index.vector_ids)
    return frozenset(i for i, codec in index.codecs.items() if codec == question.codec)


def _unjudged(ranked: Ranked, known: frozenset[str]) -> bool:
    """Whether words match while nothing is known of the meaning: no vectors yet, or none to ask
    with.

    The gate is calibrated for both legs together; to hold such an item back would forget, for the
    seconds until its vector is there, what the user has just said.
    """
    lexical = ranked.hit.votes.get(Leg.LEXICAL)
    return ranked.item_id not in known and lexical is not None and lexical.score > 0.0


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


@dataclass(frozen=True)
class _Judge:
    """Score and gate of the hits of one search."""

    fused: engine.Fused
    index: UserIndex
    late: Mapping[str, float]
    held: Mapping[str, float]
    windows: Sequence[tuple[datetime, datetime]]
    now: datetime

    def ranked(self, hit: Hit) -> Ranked:
        """A hit with what it is worth and how sure the gate is of it."""
        evidence = engine.evidence(self.fused, hit.id, self.late, self.held.get(hit.id, 0.0))
        exact = gate.is_exact(evidence)
        probability = _EXACT if exact else gate.relevance(evidence, self.fused.calibration)
        strength = hit.score / (hit.decay or 1.0)
        if _in_window(hit.id, self.index, self.windows):
            strength += IN_WINDOW
        # "How is the weather today" is not about all that was said today.
        past = [(start, end) for start, end in self.windows if not start <= self.now < end]
        if _in_window(hit.id, self.index, past):
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
