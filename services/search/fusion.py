"""From the legs' scores to one score per item.

Default: a convex combination of calibrated scores (Bruch, Gai and Ingber 2023 found it ahead
of RRF when the normalisation is right). Calibrated means fixed anchors: dense scores by those of
the model, BM25 by the score of a perfect match of this query. Per-query min-max would give the
best of the worst a 1.0. A leg that does not know must not vote: an item without a lexical match
gets no lexical vote, and each leg's weight is scaled by how much it knows about this query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.search.calibration import Calibration
from services.search.recipes import Fusion, Recipe
from services.search.types import Leg, LegResult, LegState

MINMAX_PHRASE_WEIGHT: Final = 0.6
_USUAL_WEIGHT: Final = 60.0
_LENGTH_POWER: Final = 0.7


@dataclass(frozen=True)
class FusedScores:
    """scores: id -> fused; calibrated: leg -> id -> [0,1]; weights: leg -> weight in this query."""

    scores: Mapping[str, float]
    calibrated: Mapping[Leg, Mapping[str, float]]
    weights: Mapping[Leg, float]


def fuse(
    legs: Sequence[LegResult], recipe: Recipe, calibration: Calibration, dense_factor: float = 1.0
) -> FusedScores:
    """Fuses the legs that answered and have a weight, in the recipe's way.

    `dense_factor`: what the dense weight is multiplied by in this query (`trust.py`); calibrated
    fusion only, as the other kinds normalise per query anyway.
    """
    able = {
        r.leg: r for r in legs if r.state is LegState.OK and recipe.weights.get(r.leg, 0.0) > 0.0
    }
    if recipe.fusion is Fusion.RRF:
        return _rrf(able, recipe)
    if recipe.fusion is Fusion.MINMAX_MAX:
        return _minmax_max(able, recipe)
    return _calibrated(able, recipe, calibration, dense_factor)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


def calibrate_dense(result: LegResult, calibration: Calibration) -> dict[str, float]:
    """Inner products on the model's anchors: 0 low, 1 high. Not clipped, so that order survives."""
    low, span = calibration.dense_low, calibration.dense_high - calibration.dense_low
    return {i: (s - low) / span for i, s in {**result.extra, **result.scores}.items()}


def calibrate_lexical(result: LegResult) -> dict[str, float]:
    """BM25 on the scale of a perfect match of this query: 1 = every term, saturated.

    A long query is never matched in full, so its scale grows less than its weight does (power 0.7,
    anchored at 60, a perfect match of about eight words); measured on the development halves.
    """
    if result.query_weight <= 0.0:
        best = max(result.scores.values(), default=0.0)
        return {i: s / best for i, s in result.scores.items()} if best > 0.0 else {}
    scale = lexical_scale(result.query_weight)
    return {i: s / scale for i, s in {**result.extra, **result.scores}.items()}


def lexical_scale(query_weight: float) -> float:
    """BM25 that counts as 1 for a query whose perfect match scores `query_weight`."""
    return float(_USUAL_WEIGHT * (query_weight / _USUAL_WEIGHT) ** _LENGTH_POWER)


def _calibrated(
    able: Mapping[Leg, LegResult], recipe: Recipe, calibration: Calibration, dense_factor: float
) -> FusedScores:
    calibrated: dict[Leg, Mapping[str, float]] = {}
    weights: dict[Leg, float] = {}
    floor = 0.0
    for leg, result in able.items():
        votes: Mapping[str, float]
        if leg is Leg.DENSE:
            votes = calibrate_dense(result, calibration)
            floor = min((votes[i] for i in result.scores), default=0.0)
        elif leg is Leg.LEXICAL:
            votes = calibrate_lexical(result)
        else:
            votes = {i: _unit(s) for i, s in {**result.extra, **result.scores}.items()}
        calibrated[leg] = votes
        weights[leg] = recipe.weights[leg] * (dense_factor if leg is Leg.DENSE else 1.0)
    total = sum(weights.values())
    scores: dict[str, float] = {}
    for item in {i for votes in calibrated.values() for i in votes}:
        score = 0.0
        for leg, votes in calibrated.items():
            score += weights[leg] * votes.get(item, floor if leg is Leg.DENSE else 0.0)
        scores[item] = score / total if total else 0.0
    return FusedScores(scores, calibrated, weights)


def _rrf(able: Mapping[Leg, LegResult], recipe: Recipe) -> FusedScores:
    """Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009), weighted; unmatched: no vote."""
    scores: dict[str, float] = {}
    calibrated: dict[Leg, Mapping[str, float]] = {}
    for leg, result in able.items():
        votes = {i: 1.0 / (recipe.rrf_k + r) for r, i in enumerate(result.ranked(), 1)}
        calibrated[leg] = votes
        for item, vote in votes.items():
            scores[item] = scores.get(item, 0.0) + recipe.weights[leg] * vote
    return FusedScores(scores, calibrated, {leg: recipe.weights[leg] for leg in able})


def _minmax_max(able: Mapping[Leg, LegResult], recipe: Recipe) -> FusedScores:
    """Weighted maximum of three recalls, each min-max normalised: hybrid (the mean of dense and
    lexical) 1.0, semantic 1.0, phrase 0.6. The recipe's weights scale their leg."""
    calibrated = {leg: _minmax(result.scores) for leg, result in able.items()}
    dense = calibrated.get(Leg.DENSE, {})
    lexical = calibrated.get(Leg.LEXICAL, {})
    phrase = calibrated.get(Leg.PHRASE, {})
    weight = {leg: recipe.weights[leg] for leg in able}
    hybrid_total = weight.get(Leg.DENSE, 0.0) + weight.get(Leg.LEXICAL, 0.0)
    scores: dict[str, float] = {}
    for item in {*dense, *lexical, *phrase}:
        of_dense = weight.get(Leg.DENSE, 0.0) * dense.get(item, 0.0)
        of_lexical = weight.get(Leg.LEXICAL, 0.0) * lexical.get(item, 0.0)
        hybrid = (of_dense + of_lexical) / hybrid_total if hybrid_total else 0.0
        scores[item] = max(
            hybrid,
            min(1.0, weight.get(Leg.DENSE, 0.0)) * dense.get(item, 0.0),
            MINMAX_PHRASE_WEIGHT * min(1.0, weight.get(Leg.PHRASE, 0.0)) * phrase.get(item, 0.0),
        )
    return FusedScores(scores, calibrated, weight)


def _minmax(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores to [0,1]; a single or constant list is 1, not 0."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    span = high - low
    return {i: (s - low) / span if span > 0.0 else 1.0 for i, s in scores.items()}
