"""Retrieval metrics with binary gain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Metrics:
    """recall at 1, 5, 10 (mean share of relevant items found), MRR and nDCG at 10."""

    r1: float
    r5: float
    r10: float
    mrr10: float
    ndcg10: float


def of_query(ranked: Sequence[str], relevant: frozenset[str]) -> Metrics:
    """Metrics of one ranking."""
    hits = [i in relevant for i in ranked[:10]]
    gain = sum(1.0 / math.log2(n + 2) for n, hit in enumerate(hits) if hit)
    ideal = sum(1.0 / math.log2(n + 2) for n in range(min(10, len(relevant))))
    first = next((n for n, hit in enumerate(hits, 1) if hit), 0)
    count = len(relevant)
    return Metrics(
        sum(hits[:1]) / count,
        sum(hits[:5]) / count,
        sum(hits) / count,
        1.0 / first if first else 0.0,
        gain / ideal,
    )


def mean(values: Iterable[Metrics]) -> Metrics:
    """Mean over queries; zeros for none."""
    listed = list(values)
    count = max(1, len(listed))
    return Metrics(*(sum(getattr(m, f.name) for m in listed) / count for f in fields(Metrics)))
