"""Which of many facts and undigested turns one answer looks at.

The query decides before anything is left out, and what is left out is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.memory import profile
from services.memory.domain import Fact, FactKind, Layer
from services.memory.store.backlog import Backlog
from services.memory.threads import by_size
from services.search.bm25 import RamIndex

MOST_FACTS: Final = 400
"""Facts that one answer looks at; the token budget shows fewer still."""
READ_FACTS: Final = 5_000
"""Facts that are ranked where there are more than that."""
_FACT_CHARACTERS: Final = 150


@dataclass(frozen=True)
class Left:
    """Items left out of one layer for one reason: `ids`, and `more` whose ids were not read."""

    layer: Layer
    reason: str
    ids: tuple[str, ...] = ()
    more: int = 0

    @property
    def count(self) -> int:
        """How many."""
        return len(self.ids) + self.more


async def facts(valid: Sequence[Fact], total: int, query: str) -> tuple[list[Fact], Left]:
    """Of the facts that were read (`total` are valid) those to look at, best first, and the
    others."""
    size = len(query) + len(valid) * _FACT_CHARACTERS
    ranked = await by_size(size, lambda: by_relevance(valid, query))
    beyond = tuple(f.fact_id for f in ranked[MOST_FACTS:])
    return ranked[:MOST_FACTS], Left(Layer.PROFILE, "top_k", beyond, total - len(valid))


def by_relevance(facts: Sequence[Fact], query: str) -> list[Fact]:
    """Preferences first, then facts; within each what the question is about first, else by name.

    A small budget then keeps what is asked for.
    """
    named = sorted(facts, key=lambda f: (f.attribute, f.valid_from, f.fact_id))
    scores: dict[str, float] = {}
    if query.strip() and len(named) > 1:
        index = RamIndex.of_texts((f.fact_id, profile.searchable(f)) for f in named)
        scores = dict(index.leg(query, len(named)).scores)
    return sorted(
        named, key=lambda f: (f.kind is not FactKind.PREFERENCE, -scores.get(f.fact_id, 0.0))
    )


async def turns(backlog: Backlog, query: str, limit: int) -> tuple[list[str], Left]:
    """Ids of the undigested turns to look at, and the others.

    What shares words with the query takes up to half of the places, the newest take the rest; those
    that extraction gave up on come last, as they stay for good.
    """
    size = len(query) + sum(len(terms) for _, terms in backlog.matched)
    best = await by_size(size, lambda: _best(backlog, query, limit // 2))
    order = list(dict.fromkeys([*best, *backlog.waiting, *backlog.given_up]))
    beyond = tuple(order[limit:])
    return order[:limit], Left(
        Layer.FRESH_TURNS, "top_k", beyond, max(0, backlog.total - len(order))
    )


def _best(backlog: Backlog, query: str, limit: int) -> list[str]:
    ids = [turn_id for turn_id, _ in backlog.matched]
    if not ids or limit < 1:
        return []
    return RamIndex(ids, [terms for _, terms in backlog.matched]).leg(query, limit).ranked()
