"""What the numbers of one embedding model mean: anchors for fusion and for the gate.

E5's inner products live in 0.7..1.0, other models elsewhere: without anchors neither a convex
combination nor an absolute gate is possible. Anchors belong to a model, never to a corpus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

DEFAULT_MODEL: Final = "multilingual-e5-small"


@dataclass(frozen=True)
class Calibration:
    """Anchors of one model. Serialisable; stored with the model by `nianlun calibrate`."""

    model_id: str
    dense_low: float
    """Inner product at which a passage says nothing about a query (calibrated 0)."""
    dense_high: float
    """Inner product of a sure match (calibrated 1)."""
    gate_bias: float
    gate_dense: float
    gate_lexical: float
    gate_rerank: float
    late_low: float = 0.0
    late_high: float = 1.0
    none_below: float = 0.5
    medium_from: float = 0.75
    high_from: float = 0.9
    late_gate: tuple[float, ...] = ()
    """The gate where late interaction has scored the hit; () = the gate above without it. Factors
    of: 1, raw inner product, coverage, log length of the text, log length of the query, different
    languages, those x inner product, raw late score, different languages x late score."""

    def to_json(self) -> str:
        """One JSON object, keys as the fields."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Inverse of `to_json`. Raises ValueError for anything else."""
        data = json.loads(text)
        known = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or set(data) - known:
            raise ValueError("not a calibration")
        try:
            return cls(**{**data, "late_gate": tuple(data.get("late_gate", ()))})
        except TypeError as error:
            raise ValueError(f"not a calibration: {error}") from None


SHIPPED: Final[Mapping[str, Calibration]] = {
    DEFAULT_MODEL: Calibration(
        model_id=DEFAULT_MODEL,
        dense_low=0.75,
        dense_high=1.0,
        gate_bias=-4.0,
        gate_dense=6.0,
        gate_lexical=4.0,
        gate_rerank=0.0,
        late_gate=(-41.44, 46.28, 14.04, -8.12, -2.67, 20.46, -30.4, 14.0, 19.2),
    )
}


def shipped(model_id: str) -> Calibration | None:
    """The calibration that comes with the product for that model, None for others."""
    return SHIPPED.get(model_id)
