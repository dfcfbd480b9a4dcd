"""Fitting a model's anchors and its gate from labelled samples: what `nianlun calibrate` runs.

Pure numpy. The shipped coefficients stand on anchored scales, where every model's scores mean the
same, so they are the starting point of every fit: a few hundred pairs move them, a handful hardly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.search import gate
from services.search.calibration import Calibration
from services.search.types import Evidence

UNANSWERED_AT: Final = 0.13
ANSWERED_AT: Final = 0.42
UNRELATED_AT: Final = 0.32
EXACT_AT: Final = 0.68
"""Where typical inner products lie between the anchors of the shipped model: the medians of the
first hit for unanswered and for answered questions; the median of random pairs within a collection
and the 90th percentile of right ones. Another model's anchors are set so that its numbers lie there
too: the weights of the recipes and the gate then mean the same for it."""
KEPT: Final = 0.96
"""Share of the answered questions that the gate lets pass."""
MIN_SAMPLES: Final = 10
_PULL: Final = 2.0
"""Weight of the starting point, in questions' worth of evidence per standard deviation."""
_STEPS: Final = 50
_SMALLEST_SPAN: Final = 0.02

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Evidence of the first hit for a question (`Ranking.evidence`), which is what the gate judges;
    `relevant`: the collection answers the question and the answer is among the hits."""

    evidence: Evidence
    relevant: bool


def anchors(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """(low, high) that put two inner products at their places: each is (inner product, place)."""
    span = max((other[0] - one[0]) / (other[1] - one[1]), _SMALLEST_SPAN)
    low = one[0] - one[1] * span
    return low, low + span


def fit(model_id: str, samples: Sequence[Sample], base: Calibration) -> Calibration | None:
    """The model's calibration, begun at `base`; None with fewer than ten samples of a kind.

    First the anchors, from the medians of both kinds; then the gate's coefficients, by logistic
    regression pulled towards those of `base`; last its threshold, which lets 96 % of the answered
    questions pass. Samples without a vector say nothing and are left out.
    """
    good = [s.evidence for s in samples if s.relevant and s.evidence.dense is not None]
    bad = [s.evidence for s in samples if not s.relevant and s.evidence.dense is not None]
    if len(good) < MIN_SAMPLES or len(bad) < MIN_SAMPLES:
        return None
    low, high = anchors((_median_dense(bad), UNANSWERED_AT), (_median_dense(good), ANSWERED_AT))
    fitted = replace(base, model_id=model_id, dense_low=low, dense_high=high)
    late = [e for e in (*good, *bad) if e.rerank is not None]
    if 2 * len(late) < len(good) + len(bad):
        # No token vectors: the gate without them is the one in use.
        good, bad = [replace(e, rerank=None) for e in good], [replace(e, rerank=None) for e in bad]
    fitted = _with_gate(fitted, good, bad)
    kept = float(np.quantile([gate.relevance(e, fitted) for e in good], 1.0 - KEPT))
    none_below = float(np.clip(kept, 0.05, 0.6))
    return replace(
        fitted,
        none_below=none_below,
        medium_from=max(base.medium_from, none_below + 0.1),
        high_from=max(base.high_from, none_below + 0.2),
    )


def _median_dense(evidence: Sequence[Evidence]) -> float:
    return float(np.median([e.dense for e in evidence if e.dense is not None]))


def _with_gate(base: Calibration, good: Sequence[Evidence], bad: Sequence[Evidence]) -> Calibration:
    """`base` with the coefficients of the gate that judges these samples (with or without late
    interaction) moved to them."""
    with_late = any(e.rerank is not None for e in good)
    kept_good = [e for e in good if not with_late or e.rerank is not None]
    kept_bad = [e for e in bad if not with_late or e.rerank is not None]
    if min(len(kept_good), len(kept_bad)) < MIN_SAMPLES:
        return base
    start = base.gate if with_late else base.gate_plain
    names = tuple(start)
    rows = np.asarray(
        [[gate.features(e, base)[n] for n in names] for e in (*kept_good, *kept_bad)], np.float64
    )
    labels = np.asarray([1.0] * len(kept_good) + [0.0] * len(kept_bad))
    # Both kinds count the same, however many there are of each.
    shares = np.where(labels > 0.0, 0.5 / len(kept_good), 0.5 / len(kept_bad)) * len(labels)
    moved = logistic(rows, labels, shares, np.asarray([start[n] for n in names]), _PULL)
    coefficients = {n: float(c) for n, c in zip(names, moved, strict=True)}
    if with_late:
        return replace(base, gate=coefficients)
    return replace(base, gate_plain=coefficients)


def logistic(rows: Floats, labels: Floats, shares: Floats, start: Floats, pull: float) -> Floats:
    """Coefficients (k,) of a logistic regression over rows (n, k), by Newton's method.

    `shares` (n,): weight of each row. `pull`: strength of the normal prior around `start` on each
    coefficient, per standard deviation of its column; a constant column (the bias) moves freely.
    """
    spread = rows.std(axis=0)
    prior = pull * spread**2
    beta = start.astype(np.float64).copy()
    for _ in range(_STEPS):
        probability = 1.0 / (1.0 + np.exp(-np.clip(rows @ beta, -40.0, 40.0)))
        slope = rows.T @ (shares * (probability - labels)) + prior * (beta - start)
        weight = shares * probability * (1.0 - probability)
        curvature = rows.T @ (rows * weight[:, None]) + np.diag(prior + 1e-6)
        step = np.linalg.solve(curvature, slope)
        length = float(np.abs(step).max())
        beta -= step * min(1.0, 5.0 / max(length, 1e-12))
        if length < 1e-6:
            break
    return beta
