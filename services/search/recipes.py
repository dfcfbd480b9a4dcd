"""Named recipes as data, and the check of explicit parameters.

A recipe is one setting for every corpus; what differs between queries is decided per query by
the engine (confidence of each leg), never by hand per corpus.

Weights are on the calibrated scale (dense: model anchors; lexical: share of a perfect match),
chosen on the development halves of the labelled sets: the best mean among those that leave no set
below its best plain method. The lexical share of a query in another language is near zero
by itself, so that leg falls silent without a switch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Final

from services.search.types import Leg


class Fusion(StrEnum):
    """How the legs become one score."""

    CALIBRATED = "calibrated"
    RRF = "rrf"
    MINMAX_MAX = "minmax_max"


class RecipeError(ValueError):
    """An unknown recipe or a parameter out of bounds. `field`: which, `reason`: why (public)."""

    def __init__(self, field_name: str, reason: str) -> None:
        super().__init__(f"{field_name}: {reason}")
        self.field = field_name
        self.reason = reason


@dataclass(frozen=True)
class Propagation:
    """Shares that an item borrows, on the fused scale (0 switches a part off)."""

    previous: float = 0.0
    next: float = 0.0
    group: float = 0.0
    group_top: int = 3

    @property
    def total(self) -> float:
        """An item's own share and all borrowed ones."""
        return 1.0 + self.previous + self.next + self.group


@dataclass(frozen=True)
class Recipe:
    """All parameters of a search but the query and the scope."""

    name: str
    weights: Mapping[Leg, float]
    fusion: Fusion = Fusion.CALIBRATED
    leg_k: int = 100
    """Candidates each leg is asked for."""
    top_k: int = 10
    rerank: bool = True
    rerank_head: int = 30
    rerank_weight: float = 1.0
    """Weight of a z-scored reranker of unknown scale beside the z-scored fused score."""
    late_weight: float = 1.0
    """Weight of late interaction beside the legs' weights (calibrated fusion)."""
    dense_spread: float = 0.0
    """How far the dense weight follows the lead of the leg's best over its tenth in this query
    (calibrated fusion, `trust.py`): 0 not at all, 1 as a per-query normalisation would."""
    rrf_k: int = 60
    propagation: Propagation = field(default_factory=Propagation)
    near_duplicate: float = 0.0
    """Inner product at which two items are one; 0 leaves only equal content hashes."""
    mmr_lambda: float = 1.0
    """1 = no MMR. Smaller favours difference over relevance."""
    per_document: int = 0
    """Most hits of one document; 0 = no cap."""
    quality: bool = True
    half_life_days: float = 0.0
    """0 = no decay."""
    decay_floor: float = 0.5
    gate: bool = True


RECIPES: Final[Mapping[str, Recipe]] = {
    "knowledge": Recipe(
        name="knowledge",
        weights={Leg.DENSE: 1.0, Leg.LEXICAL: 1.2, Leg.PHRASE: 0.3},
        dense_spread=0.6,
    ),
    "conversation": Recipe(
        name="conversation",
        weights={Leg.DENSE: 1.0, Leg.LEXICAL: 1.8, Leg.PHRASE: 0.3},
        late_weight=2.0,
        propagation=Propagation(previous=0.3, next=0.2, group=0.5),
        quality=False,
    ),
    "document": Recipe(
        name="document",
        weights={Leg.DENSE: 1.0, Leg.LEXICAL: 1.2, Leg.PHRASE: 0.3},
        dense_spread=0.6,
        propagation=Propagation(previous=0.1, next=0.1),
        gate=False,
    ),
    "exact": Recipe(
        name="exact",
        weights={Leg.DENSE: 0.0, Leg.LEXICAL: 1.0, Leg.PHRASE: 1.0},
        rerank=False,
        gate=False,
        quality=False,
    ),
}

_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "leg_k": (1, 1000),
    "top_k": (1, 1000),
    "rerank_head": (1, 200),
    "rerank_weight": (0.0, 10.0),
    "late_weight": (0.0, 20.0),
    "dense_spread": (0.0, 1.0),
    "rrf_k": (1, 1000),
    "near_duplicate": (0.0, 1.0),
    "mmr_lambda": (0.0, 1.0),
    "per_document": (0, 1000),
    "half_life_days": (0.0, 36_500.0),
    "decay_floor": (0.0, 1.0),
}
_PROPAGATION_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "previous": (0.0, 2.0),
    "next": (0.0, 2.0),
    "group": (0.0, 2.0),
    "group_top": (1, 20),
}


def recipe(name: str) -> Recipe:
    """The shipped recipe of that name; "" is `knowledge`. Raises RecipeError if unknown."""
    try:
        return RECIPES[name or "knowledge"]
    except KeyError:
        raise RecipeError("recipe", f"unknown; one of {', '.join(RECIPES)}") from None


def _bounded(name: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if not math.isfinite(value) or not low <= value <= high:
        raise RecipeError(name, f"must lie in {low:g}..{high:g}")


def validate(value: Recipe) -> Recipe:
    """The recipe itself when every parameter is in bounds; else RecipeError names the field."""
    for name, bounds in _BOUNDS.items():
        _bounded(name, getattr(value, name), bounds)
    for name, bounds in _PROPAGATION_BOUNDS.items():
        _bounded(f"propagation.{name}", getattr(value.propagation, name), bounds)
    for leg, weight in value.weights.items():
        _bounded(f"weights.{leg}", weight, (0.0, 10.0))
    if not any(value.weights.values()):
        raise RecipeError("weights", "at least one leg needs a weight above 0")
    return value


def customise(base: Recipe, parameters: Mapping[str, object]) -> Recipe:
    """`base` with explicit parameters by field name; `weights` and `propagation` as mappings.

    Weights that are not named keep the recipe's. Raises RecipeError for unknown names, wrong types
    and values out of bounds, so that a misspelt parameter is never silently ignored.
    """
    known = {f.name for f in fields(Recipe)} - {"name"}
    changes: dict[str, object] = {}
    for name, value in parameters.items():
        if name not in known:
            raise RecipeError(name, f"unknown parameter; one of {', '.join(sorted(known))}")
        changes[name] = _convert(base, name, value)
    return validate(replace(base, **changes))  # type: ignore[arg-type]


def _convert(base: Recipe, name: str, value: object) -> object:
    if name == "weights":
        return {**base.weights, **_weights(value)}
    if name == "propagation":
        return _propagation(base.propagation, value)
    if name == "fusion":
        try:
            return Fusion(str(value))
        except ValueError:
            raise RecipeError(name, f"unknown; one of {', '.join(Fusion)}") from None
    current = getattr(base, name)
    if isinstance(current, bool):
        if not isinstance(value, bool):
            raise RecipeError(name, "must be true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecipeError(name, "must be a number")
    if isinstance(current, int):
        if value != int(value):
            raise RecipeError(name, "must be a whole number")
        return int(value)
    return float(value)


def _weights(value: object) -> dict[Leg, float]:
    if not isinstance(value, Mapping):
        raise RecipeError("weights", "must map a leg to a number")
    out: dict[Leg, float] = {}
    for key, weight in value.items():
        if str(key) not in set(Leg):
            raise RecipeError(f"weights.{key}", f"unknown leg; one of {', '.join(Leg)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise RecipeError(f"weights.{key}", "must be a number")
        out[Leg(str(key))] = float(weight)
    return out


def _propagation(base: Propagation, value: object) -> Propagation:
    if isinstance(value, Propagation):
        return value
    if not isinstance(value, Mapping):
        raise RecipeError("propagation", "must map a part to a number")
    changes: dict[str, float] = {}
    for key, share in value.items():
        if key not in _PROPAGATION_BOUNDS:
            raise RecipeError(f"propagation.{key}", "unknown part")
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise RecipeError(f"propagation.{key}", "must be a number")
        changes[key] = int(share) if key == "group_top" else float(share)
    return replace(base, **changes)  # type: ignore[arg-type]
