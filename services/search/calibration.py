"""What the numbers of one embedding model mean: anchors for fusion and for the gate.

E5's inner products live in 0.7..1.0, other models elsewhere: without anchors neither a convex
combination nor an absolute gate is possible. Anchors belong to a model, never to a corpus.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

DEFAULT_MODEL: Final = "multilingual-e5-small"
# Of earlier versions: their factors stood on other scales.
_RETIRED: Final = frozenset({"gate_bias", "gate_dense", "gate_lexical", "gate_rerank", "late_gate"})


@dataclass(frozen=True)
class Calibration:
    """Anchors of one model. Serialisable; stored with the model by `nianlun calibrate`.

    `gate`, `gate_plain`: coefficients of `gate.features` by name, where late interaction has scored
    the hit and where it has not. A feature that is not named counts nothing.
    """

    model_id: str
    dense_low: float
    """Inner product at which a passage says nothing about a query (calibrated 0)."""
    dense_high: float
    """Inner product of a sure match (calibrated 1)."""
    late_low: float = 0.0
    late_high: float = 1.0
    none_below: float = 0.5
    medium_from: float = 0.75
    high_from: float = 0.9
    gate: Mapping[str, float] = field(default_factory=dict)
    gate_plain: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object, keys as the fields."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Inverse of `to_json`. Raises ValueError for anything else.

        One that was stored before the gate named its features keeps its anchors and takes the
        shipped coefficients.
        """
        data = json.loads(text)
        known = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or set(data) - known - _RETIRED:
            raise ValueError("not a calibration")
        values: dict[str, Any] = {k: v for k, v in data.items() if k in known}
        if "gate" not in values:
            for name in ("none_below", "medium_from", "high_from"):
                values.pop(name, None)
        for name in ("gate", "gate_plain"):
            values.setdefault(name, getattr(SHIPPED[DEFAULT_MODEL], name))
            if not _coefficients(values[name]):
                raise ValueError(f"not a calibration: {name}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"not a calibration: {error}") from None


def _coefficients(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(c, int | float) and math.isfinite(c) for c in value.values()
    )


SHIPPED: Final[Mapping[str, Calibration]] = {
    # Gate: fitted on development questions put to their own and to other sets' corpora, every pair
    # of sets weighing the same; more of any evidence never lowers the relevance.
    DEFAULT_MODEL: Calibration(
        model_id=DEFAULT_MODEL,
        dense_low=0.75,
        dense_high=1.0,
        gate={
            "bias": -4.15,
            "dense": 16.47,
            "chinese_dense": 6.19,
            "crosses_dense": -16.47,
            "late": 5.89,
            "chinese_late": 3.91,
            "crosses_late": 14.66,
            "held": 9.85,
            "crosses_lead": 18.06,
            "length": -7.42,
            "query_length": -0.75,
            "crosses": -3.22,
            "chinese": -7.55,
            "crosses_length": 3.18,
            "crosses_query_length": -3.23,
        },
        gate_plain={
            "bias": -4.95,
            "dense": 19.21,
            "chinese_dense": 8.43,
            "crosses_dense": -17.72,
            "held": 11.38,
            "crosses_lead": 25.26,
            "length": -5.71,
            "query_length": 2.39,
            "crosses": 0.18,
            "chinese": -6.21,
            "crosses_length": 8.42,
            "crosses_query_length": -3.01,
        },
    )
}


def shipped(model_id: str) -> Calibration | None:
    """The calibration that comes with the product for that model, None for others."""
    return SHIPPED.get(model_id)
