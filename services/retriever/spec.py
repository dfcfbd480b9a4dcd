"""A search as it will be run: the request's parameters over those of its recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from services.retriever.domain import Scope
from services.search import Leg
from services.search.recipes import Recipe

NEAR_DUPLICATE: Final = 0.985
"""Inner product from which two passages say the same; two versions of a fact lie below it."""
DEFAULT_RERANK_BUDGET_S: Final = 1.0
MAX_QUERY_CHARS: Final = 32_768


@dataclass(frozen=True)
class Context:
    """Text wanted around each hit."""

    before: int = 0
    after: int = 0
    parent: bool = False
    max_parent_chars: int = 4_000

    @property
    def wanted(self) -> bool:
        """True when anything is."""
        return bool(self.before or self.after or self.parent)


@dataclass(frozen=True)
class SearchSpec:
    """Everything a search needs. `rerank_by_model`: not by stored token vectors."""

    query: str
    scopes: tuple[Scope, ...]
    recipe: Recipe
    explain: bool = True
    rerank_model: str = ""
    rerank_by_model: bool = False
    rerank_budget_s: float = DEFAULT_RERANK_BUDGET_S
    candidates: dict[Leg, int] = field(default_factory=dict)
    context: Context = field(default_factory=Context)

    def weight(self, leg: Leg) -> float:
        """The leg's weight, 0 when the recipe has no such leg."""
        return self.recipe.weights.get(leg, 0.0)

    def depth(self, leg: Leg) -> int:
        """How many candidates the leg delivers."""
        # A list longer than the candidates could never be filled.
        return self.candidates.get(leg) or max(self.recipe.leg_k, min(self.recipe.top_k, 1_000))
