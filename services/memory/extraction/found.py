"""What one rule makes of a match."""

from __future__ import annotations

from dataclasses import dataclass

from services.memory.domain import Cardinality, FactKind


@dataclass(frozen=True)
class Found:
    """An attribute and its value; an empty `value` takes the group `v` of the match."""

    attribute: str
    value: str = ""
    kind: FactKind = FactKind.FACT
    cardinality: Cardinality | None = None
    ended: bool = False
