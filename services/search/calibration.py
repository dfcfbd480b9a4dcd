"""What the numbers of one embedding model mean: anchors for fusion and for the gate.

E5's inner products live in 0.7..1.0, other models elsewhere: without anchors neither a convex
combination nor an absolute gate is possible. Anchors belong to a model, never to a corpus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
            return cls(**data)
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
    )
}


def shipped(model_id: str) -> Calibration | None:
    """The calibration that comes with the product for that model, None for others."""
    return SHIPPED.get(model_id)


@dataclass(frozen=True)
class Sample:
    """Best candidate of one labelled query: raw scores and whether the query is on topic."""

    dense: float
    lexical_coverage: float
    rerank: float | None
    relevant: bool


def fit(model_id: str, samples: NDArray[np.float64]) -> Calibration:
    """Placeholder signature; see the fitting below."""
    raise NotImplementedError(model_id, samples.shape)
