"""The search itself: fuse, propagate, rerank, weigh, gate, diversify, explain. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.search import diversity, fusion, gate, language, propagate, rerank, trust, weights
from services.search.calibration import Calibration
from services.search.recipes import Fusion, Recipe
from services.search.types import (
    Confidence,
    Degradation,
    DegradationCode,
    Evidence,
    Hit,
    Item,
    Leg,
    LegResult,
    LegState,
    LegVote,
    Ranking,
    RerankResult,
)


@dataclass(frozen=True)
class Fused:
    """State between fusion and reranking. `head`: ids worth reranking, best first."""

    query: str
    recipe: Recipe
    calibration: Calibration
    legs: tuple[LegResult, ...]
    items: Mapping[str, Item]
    scores: fusion.FusedScores
    gains: Mapping[str, float]
    """Share of the fused score that came from neighbours and group."""
    total: Mapping[str, float]
    """Fused score with propagation."""
    order: tuple[str, ...]
    head: tuple[str, ...]
    degradations: tuple[Degradation, ...]


def pool(legs: Iterable[LegResult]) -> list[str]:
    """Ids of all candidates, those for which a store should load items and fill `extra`."""
    return list(dict.fromkeys(i for r in legs if r.state is LegState.OK for i in r.ranked()))


def fuse(
    query: str,
    legs: Sequence[LegResult],
    items: Mapping[str, Item],
    recipe: Recipe,
    calibration: Calibration,
) -> Fused:
    """First half of a search. `items` may lack candidates; those just carry no metadata.

    A failed leg becomes a degradation; the remaining ones decide. With all of them failed
    the order is empty and the degradations say why.
    """
    factor = trust.dense_factor(query, legs, items, calibration, recipe.dense_spread)
    scores = fusion.fuse(legs, recipe, calibration, factor)
    gains, total = propagate.apply(scores.scores, items, recipe.propagation)
    order = tuple(sorted(total, key=lambda i: (-total[i], i)))
    failed = tuple(
        Degradation(DegradationCode.LEG_FAILED, r.leg.value, r.reason)
        for r in legs
        if r.state is LegState.FAILED and recipe.weights.get(r.leg, 0.0) > 0.0
    )
    weighted = [r for r in legs if recipe.weights.get(r.leg, 0.0) > 0.0]
    return Fused(
        query=query,
        recipe=recipe,
        calibration=calibration,
        legs=tuple(legs),
        items=items,
        scores=scores,
        gains=gains,
        total=total,
        order=order,
        head=rerank.head(order, weighted, recipe.rerank_head),
        degradations=failed,
    )


def finish(
    fused: Fused, reranked: RerankResult | None = None, now: datetime | None = None
) -> Ranking:
    """Second half: reranker scores (None = not asked), factors, gate, diversity, top k."""
    recipe, items = fused.recipe, fused.items
    base, degradations = _with_rerank(fused, reranked)
    factors = {i: _factors(items.get(i), recipe, now) for i in fused.order}
    final = {i: base[i] * factors[i][0] * factors[i][1] for i in fused.order}
    order = sorted(final, key=lambda i: (-final[i], i))
    rerank_scores = reranked.scores if reranked is not None else {}
    # The gate was fitted on late interaction; a reranker of another scale says nothing to it.
    known = rerank_scores if reranked is not None and reranked.absolute else {}
    seen = evidence(fused, order[0], known) if order else None
    order, confidence, probability, held = _gate(fused, order, seen)
    collapsed = diversity.collapse(order, items, recipe.near_duplicate, 4 * recipe.top_k)
    capped = diversity.cap_per_document(collapsed.order, items, recipe.per_document)
    shown = diversity.mmr(capped, final, items, recipe.mmr_lambda, recipe.top_k)[: recipe.top_k]
    ranks = {r.leg: {i: n for n, i in enumerate(r.ranked(), 1)} for r in fused.legs}
    hits = tuple(
        Hit(
            id=i,
            score=final[i],
            votes=_votes(fused, i, ranks),
            fused=fused.scores.scores[i],
            rerank=rerank_scores.get(i),
            propagated=fused.gains[i],
            quality=factors[i][0],
            decay=factors[i][1],
            duplicates=collapsed.sources.get(i, ()),
        )
        for i in shown
    )
    return Ranking(
        hits=hits,
        confidence=confidence,
        relevance=probability,
        held_back=held,
        collapsed=collapsed.dropped + len(collapsed.order) - len(capped),
        degradations=(*fused.degradations, *degradations),
        leg_weights=fused.scores.weights,
        evidence=seen,
    )


def search(
    query: str,
    legs: Sequence[LegResult],
    items: Mapping[str, Item],
    recipe: Recipe,
    calibration: Calibration,
    reranked: RerankResult | None = None,
    now: datetime | None = None,
) -> Ranking:
    """Both halves at once, where the reranker's scores are at hand or not wanted."""
    return finish(fuse(query, legs, items, recipe, calibration), reranked, now)


def _with_rerank(
    fused: Fused, reranked: RerankResult | None
) -> tuple[dict[str, float], tuple[Degradation, ...]]:
    """Scores after reranking: scored head on top, then the rest in fused order."""
    base = dict(fused.total)
    if reranked is None or not fused.recipe.rerank:
        return base, ()
    changed = _combined(fused, base, reranked)
    if changed:
        lowest = min(changed.values())
        for item in fused.order:
            # An unscored item may not overtake what was read more closely and found better.
            base[item] = changed[item] if item in changed else min(base[item], lowest)
    if reranked.complete:
        return base, ()
    code = DegradationCode.RERANK_PARTIAL if changed else DegradationCode.RERANK_FAILED
    return base, (Degradation(code, "rerank", reranked.reason),)


def _combined(fused: Fused, base: Mapping[str, float], reranked: RerankResult) -> dict[str, float]:
    recipe = fused.recipe
    if reranked.absolute and recipe.fusion is Fusion.CALIBRATED:
        calibration, shares = fused.calibration, recipe.propagation
        span = calibration.late_high - calibration.late_low
        late = {i: (s - calibration.late_low) / span for i, s in reranked.scores.items()}
        # Propagation divided the legs by all shares; late interaction keeps its part of one.
        legs_weight = sum(fused.scores.weights.values()) * shares.total
        return rerank.combine_absolute(base, fused.head, late, recipe.late_weight, legs_weight)
    return rerank.combine(base, fused.head, reranked.scores, recipe.rerank_weight)


def _factors(item: Item | None, recipe: Recipe, now: datetime | None) -> tuple[float, float]:
    if item is None:
        return 1.0, 1.0
    quality = weights.quality(item.kind, item.text) if recipe.quality else 1.0
    return quality, weights.decay(item.time, now, recipe.half_life_days, recipe.decay_floor)


def evidence(
    fused: Fused, item: str, rerank_scores: Mapping[str, float], held: float | None = None
) -> Evidence:
    """What speaks for one candidate, as the gate sees it. `rerank_scores` are raw; `held` saves
    tokenising the item's text where an index knows the share of the query's terms in it."""
    by_leg = {r.leg: r for r in fused.legs if r.state is LegState.OK}

    def raw(leg: Leg) -> float | None:
        result = by_leg.get(leg)
        if result is None:
            return None
        return result.scores.get(item, result.extra.get(item))

    lexical, dense = by_leg.get(Leg.LEXICAL), raw(Leg.DENSE)
    weight = lexical.query_weight if lexical is not None else 0.0
    coverage = (raw(Leg.LEXICAL) or 0.0) / weight if weight > 0.0 else 0.0
    tenth = trust.crowd(by_leg.get(Leg.DENSE))
    text = fused.items[item].text if item in fused.items else ""
    asked_in, told_in = language.is_chinese(fused.query), language.is_chinese(text)
    return Evidence(
        dense=dense,
        coverage=coverage,
        phrase=raw(Leg.PHRASE),
        rerank=rerank_scores.get(item) if text else None,
        length=gate.estimated_tokens(text),
        query_length=gate.estimated_tokens(fused.query),
        crosses=asked_in != told_in,
        chinese=asked_in and told_in,
        lead=0.0 if dense is None or tenth is None else dense - tenth,
        held=gate.held(fused.query, text) if held is None else held,
    )


def _gate(
    fused: Fused, order: list[str], seen: Evidence | None
) -> tuple[list[str], Confidence, float, int]:
    """(kept order, confidence, probability of the best, number held back)."""
    if seen is None:
        return [], Confidence.NONE, 0.0, 0
    calibration = fused.calibration
    # The first hit decides: it is what the gate was fitted on. Verbatim hits anywhere pass.
    best = gate.relevance(seen, calibration)
    verbatim = next((r for r in fused.legs if r.leg is Leg.PHRASE), None)
    exact = gate.is_exact(seen) or any(
        verbatim is not None and gate.is_verbatim(verbatim.scores.get(i))
        for i in order[: fused.recipe.top_k]
    )
    confidence = gate.confidence(best, exact, calibration)
    if confidence is not Confidence.NONE:
        return order, confidence, best, 0
    unjudged = _unjudged(fused)
    if not fused.recipe.gate or order[0] in unjudged:
        return order, Confidence.LOW if order[0] in unjudged else confidence, best, 0
    kept = [i for i in order if i in unjudged]
    return kept, Confidence.LOW if kept else confidence, best, len(order) - len(kept)


def _unjudged(fused: Fused) -> set[str]:
    """Items that share words with the query while nothing is known of their meaning: they have no
    vector yet, or the dense leg could not answer.

    The gate is calibrated for both legs together: holding such an item back would hide, until its
    vector is there, what has just been written. Where the recipe has no dense leg, none are.
    """
    if fused.recipe.weights.get(Leg.DENSE, 0.0) <= 0.0:
        return set()
    by_leg = {r.leg: r for r in fused.legs if r.state is LegState.OK}
    dense = by_leg.get(Leg.DENSE)
    known = {*dense.scores, *dense.extra} if dense is not None else set()
    words = (by_leg[leg].scores for leg in (Leg.LEXICAL, Leg.PHRASE) if leg in by_leg)
    return {i for scores in words for i in scores if i not in known}


def _votes(fused: Fused, item: str, ranks: Mapping[Leg, Mapping[str, int]]) -> dict[Leg, LegVote]:
    votes: dict[Leg, LegVote] = {}
    for result in fused.legs:
        score = result.scores.get(item, result.extra.get(item))
        if result.state is LegState.OK and score is not None:
            calibrated = fused.scores.calibrated.get(result.leg, {}).get(item, 0.0)
            votes[result.leg] = LegVote(ranks[result.leg].get(item, 0), score, calibrated)
    return votes
