"""Reranking the head: which candidates, and how its scores join the fused ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from services.search.types import LegResult, LegState

ALWAYS_PER_LEG = 3


def head(order: Sequence[str], legs: Sequence[LegResult], size: int) -> tuple[str, ...]:
    """The ids to rerank, best first: the fused top, and each leg's top 3 whatever fusion said."""
    chosen = dict.fromkeys(order[:size])
    known = set(order)
    for result in legs:
        if result.state is LegState.OK:
            top = [i for i in result.ranked()[:ALWAYS_PER_LEG] if i in known]
            chosen.update(dict.fromkeys(top))
    place = {item: rank for rank, item in enumerate(order)}
    return tuple(sorted(chosen, key=place.__getitem__))


def _standard(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))


def combine(
    fused: Mapping[str, float],
    candidates: Sequence[str],
    scores: Mapping[str, float],
    weight: float,
) -> dict[str, float]:
    """Fused scores of the reranked head, back on the fused scale.

    Both are z-scored over the reranked candidates and averaged with `weight` on the reranker: its
    own scale (cosine, logit, probability) does not matter. Needs at least two scored candidates
    and a spread, else nothing changes.
    """
    scored = [i for i in candidates if i in scores and math.isfinite(scores[i])]
    if len(scored) < 2 or weight <= 0.0:
        return {}
    fused_mean, fused_std = _standard([fused[i] for i in scored])
    rerank_mean, rerank_std = _standard([scores[i] for i in scored])
    if rerank_std <= 1e-12:
        return {}
    spread = fused_std if fused_std > 1e-12 else 0.05
    out: dict[str, float] = {}
    for item in scored:
        z_fused = (fused[item] - fused_mean) / spread
        z_rerank = (scores[item] - rerank_mean) / rerank_std
        out[item] = fused_mean + spread * (z_fused + weight * z_rerank) / (1.0 + weight)
    return out


def combine_absolute(
    fused: Mapping[str, float],
    candidates: Sequence[str],
    scores: Mapping[str, float],
    weight: float,
    legs_weight: float,
) -> dict[str, float]:
    """Fused scores of the reranked head when the reranker's scale is known: a weighted mean.

    `legs_weight`: what the fused score stands for. Early and late evidence then count the same
    whether the head is uniform or not, and a single candidate needs no spread.
    """
    if weight <= 0.0:
        return {}
    return {
        i: (legs_weight * fused[i] + weight * scores[i]) / (legs_weight + weight)
        for i in candidates
        if i in scores and math.isfinite(scores[i])
    }
