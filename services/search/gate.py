"""The gate: an absolute judgement of whether the best hit answers the query at all.

It looks at scores on the model's anchors and at the share of the query's words that a hit holds,
never at a per-query normalisation, which would give the best of nothing full marks. It stands after
fusion: gating the dense leg before would lose exact keyword hits, which here always pass.

    probability = gate.relevance(evidence, calibration)      # of Ranking.evidence, say
    gate.confidence(probability, gate.is_exact(evidence), calibration)

The probability is a logistic model over `features`; its coefficients belong to the calibration of
the embedding model, and `fitting.fit` moves them to labelled samples. Features stand on anchored
scales, so that coefficients make sense for a model they were not fitted on.
"""

from __future__ import annotations

import math
from typing import Final

from services.search import language, tok
from services.search.calibration import Calibration
from services.search.types import Confidence, Evidence

_EXACT: Final = 0.5
_SPAN: Final = 1e-9
_READ: Final = 4_000

__all__ = [
    "Evidence",
    "confidence",
    "estimated_tokens",
    "features",
    "held",
    "is_exact",
    "is_verbatim",
    "relevance",
]


def estimated_tokens(text: str) -> float:
    """Tokens of a text, roughly: 0.6 a CJK character, 1.2 a word."""
    characters, words = language.query_length(text)
    return 0.6 * characters + 1.2 * words


def held(query: str, text: str) -> float:
    """Share of the query's terms that a text's first 4,000 characters hold, [0,1]."""
    terms = tok.query_terms(query)
    if not terms or not text:
        return 0.0
    known = set(tok.tokenize(text[:_READ]))
    return sum(t in known for t in terms) / len(terms)


def features(evidence: Evidence, calibration: Calibration) -> dict[str, float]:
    """What the coefficients of a calibration multiply, by name.

    A long text has many tokens and so many chances to come close by accident; a pair across
    languages lies lower and shares no words; two Chinese texts lie higher than two English ones:
    each is judged by its own measure. What is not known counts 0.
    """
    span = max(calibration.dense_high - calibration.dense_low, _SPAN)
    dense = 0.0
    if evidence.dense is not None:
        dense = (evidence.dense - calibration.dense_low) / span
    late_span = max(calibration.late_high - calibration.late_low, _SPAN)
    late = 0.0
    if evidence.rerank is not None:
        late = (evidence.rerank - calibration.late_low) / late_span
    length = math.log1p(evidence.length) / 5.0
    query_length = math.log1p(evidence.query_length) / 4.0
    lead = evidence.lead / span
    crosses, chinese = float(evidence.crosses), float(evidence.chinese)
    return {
        "bias": 1.0,
        "dense": dense,
        "late": late,
        "coverage": evidence.coverage or 0.0,
        "held": evidence.held,
        "length": length,
        "query_length": query_length,
        "lead": lead,
        "crosses": crosses,
        "crosses_dense": crosses * dense,
        "crosses_late": crosses * late,
        "crosses_length": crosses * length,
        "crosses_query_length": crosses * query_length,
        "crosses_lead": crosses * lead,
        "chinese": chinese,
        "chinese_dense": chinese * dense,
        "chinese_late": chinese * late,
    }


def relevance(evidence: Evidence, calibration: Calibration) -> float:
    """Calibrated probability in [0,1] that the hit is relevant."""
    known = evidence.rerank is not None and evidence.dense is not None and calibration.gate
    coefficients = calibration.gate if known else calibration.gate_plain
    found = features(evidence, calibration)
    return _sigmoid(sum(c * found.get(name, 0.0) for name, c in coefficients.items()))


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, logit))))


def is_exact(evidence: Evidence) -> bool:
    """An identifier, quoted phrase or whole query found verbatim: never gated away."""
    return is_verbatim(evidence.phrase)


def is_verbatim(phrase: float | None) -> bool:
    """Whether a score of the phrase leg stands for a verbatim match."""
    return (phrase or 0.0) >= _EXACT


def confidence(probability: float, exact: bool, calibration: Calibration) -> Confidence:
    """The level of the best hit. A verbatim hit is at least medium."""
    if probability >= calibration.high_from:
        return Confidence.HIGH
    if exact or probability >= calibration.medium_from:
        return Confidence.MEDIUM
    if probability >= calibration.none_below:
        return Confidence.LOW
    return Confidence.NONE
