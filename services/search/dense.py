"""Exact dense scoring in numpy: for scopes in memory, for filling in scores, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.search.types import FloatArray, Leg, LegResult, LegState


def normalised(vectors: NDArray[np.floating]) -> FloatArray:
    """Rows scaled to length 1, float32. Raises ValueError for zero or non-finite rows."""
    rows = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    if not bool(np.isfinite(lengths).all()) or bool((lengths <= 0.0).any()):
        raise ValueError("a vector is zero, infinite or not a number")
    return np.asarray(rows / lengths, np.float32)


def leg(query: FloatArray, ids: Sequence[str], vectors: FloatArray, k: int) -> LegResult:
    """The dense leg over a whole scope. query (d,), vectors (n, d), both normalised."""
    if not ids:
        return LegResult(Leg.DENSE, state=LegState.SKIPPED, reason="nothing embedded")
    scores = vectors @ query
    best = np.argpartition(scores, -k)[-k:] if len(ids) > k else np.arange(len(ids))
    return LegResult(
        Leg.DENSE,
        scores={ids[row]: float(scores[row]) for row in best},
        background=(float(scores.mean()), float(scores.std())),
    )


def scores_of(query: FloatArray, vectors: Mapping[str, FloatArray]) -> dict[str, float]:
    """Inner products of single items with the query (candidates of the other legs)."""
    return {i: float(np.dot(v, query)) for i, v in vectors.items()}
