"""The gate: an absolute judgement of whether the best hits answer the query at all.

It looks at calibrated scores of the model and at the share of the query's words that a hit holds,
never at a per-query normalisation, which would give the best of nothing full marks. It stands after
fusion: gating the dense leg before would lose exact keyword hits, which here always pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.search import language
from services.search.calibration import Calibration
from services.search.types import Confidence


@dataclass(frozen=True)
class Evidence:
    """What speaks for one hit: raw inner product, lexical coverage [0,1], phrase score [0,1] and
    the raw late-interaction score, each None where it is not known. `length` and `query_length`:
    estimated tokens; `crosses`: query and text are in different languages."""

    dense: float | None
    coverage: float | None
    phrase: float | None
    rerank: float | None
    length: float = 0.0
    query_length: float = 0.0
    crosses: bool = False


def estimated_tokens(text: str) -> float:
    """Tokens of a text, roughly: 0.6 a CJK character, 1.2 a word."""
    characters, words = language.query_length(text)
    return 0.6 * characters + 1.2 * words


def relevance(evidence: Evidence, calibration: Calibration) -> float:
    """Calibrated probability in [0,1] that the hit is relevant: a logistic model per model."""
    if evidence.rerank is not None and evidence.dense is not None and calibration.late_gate:
        return _sigmoid(_late_logit(evidence, calibration.late_gate))
    logit = calibration.gate_bias
    if evidence.dense is not None:
        span = calibration.dense_high - calibration.dense_low
        logit += calibration.gate_dense * (evidence.dense - calibration.dense_low) / span
    logit += calibration.gate_lexical * (evidence.coverage or 0.0)
    if evidence.rerank is not None:
        span = calibration.late_high - calibration.late_low
        logit += calibration.gate_rerank * (evidence.rerank - calibration.late_low) / span
    return _sigmoid(logit)


def _late_logit(evidence: Evidence, factors: tuple[float, ...]) -> float:
    """A long text has many tokens and so many chances to come close by accident; a pair across
    languages lies lower and shares no words: both are judged by their own measure."""
    dense, late = evidence.dense or 0.0, evidence.rerank or 0.0
    across = 1.0 if evidence.crosses else 0.0
    values = (
        1.0,
        dense,
        evidence.coverage or 0.0,
        math.log1p(evidence.length) / 5.0,
        math.log1p(evidence.query_length) / 4.0,
        across,
        across * dense,
        late,
        across * late,
    )
    return sum(f * v for f, v in zip(factors, values, strict=True))


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, logit))))


def is_exact(evidence: Evidence) -> bool:
    """An identifier, quoted phrase or whole query found verbatim: never gated away."""
    return (evidence.phrase or 0.0) >= 0.5


def confidence(probability: float, exact: bool, calibration: Calibration) -> Confidence:
    """The level of the best hit. A verbatim hit is at least medium."""
    if probability >= calibration.high_from:
        return Confidence.HIGH
    if exact or probability >= calibration.medium_from:
        return Confidence.MEDIUM
    if probability >= calibration.none_below:
        return Confidence.LOW
    return Confidence.NONE
