"""A reranker that gives every document the same score is broken, however green its process
looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MIN_DOCUMENTS = 3
_SAME = 1e-9
_STRIKES = 2


class RerankHealth:
    """Watches the scores of each reranker: unhealthy after two calls in a row with constant
    scores.
    """

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}

    def observe(self, model: str, documents: Sequence[str], raw: Mapping[int, float]) -> None:
        """Note the raw scores of one call. Calls with fewer than three different texts say
        nothing.
        """
        if len(set(documents)) < _MIN_DOCUMENTS:
            return
        constant = max(raw.values()) - min(raw.values()) <= _SAME
        self._strikes[model] = self._strikes.get(model, 0) + 1 if constant else 0

    def healthy(self, model: str) -> bool:
        """False once a reranker has shown itself constant."""
        return self._strikes.get(model, 0) < _STRIKES
