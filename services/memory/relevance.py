"""The gate of notes and turns: is this about the question at all?

Absolute, per model and per pair of languages: the default model gives two unrelated Chinese
sentences a
cosine of 0.82 to 0.86, unrelated English ones or a mixed pair 0.74 to 0.80, so that one
threshold for all
would let every Chinese note pass or no English one. A note is short: that it shares a word with
the question
says much, more than the share of the question that it covers.
"""

from __future__ import annotations

import math
from typing import Final

from services.search import calibration as calibrations
from services.search import gate
from services.search.calibration import Calibration

_EXACT: Final = 0.9
# Cosine at which a pair says nothing, by (question, note) language; measured on short sentences.
_UNRELATED: Final = {("zh", "zh"): 0.855, ("en", "en"): 0.80}
_UNRELATED_MIXED: Final = 0.78
_SPREAD: Final = 0.03
_BIAS: Final = -1.3
_WORD: Final = 1.2
_COVERAGE: Final = 4.0


def probability(
    evidence: gate.Evidence, calibration: Calibration, asked_in: str, told_in: str
) -> float:
    """Probability in [0,1] that the item is about the question; 0.5 is the gate."""
    if gate.is_exact(evidence):
        return _EXACT
    if calibration.model_id != calibrations.DEFAULT_MODEL:
        return gate.relevance(evidence, calibration)
    logit = _BIAS
    if evidence.dense is not None:
        base = _UNRELATED.get((asked_in, told_in), _UNRELATED_MIXED)
        logit += (evidence.dense - base) / _SPREAD
    coverage = evidence.coverage or 0.0
    if coverage > 0.0:
        logit += _WORD + _COVERAGE * coverage
        if evidence.dense is None:
            # Words are all there is while the vector is pending or the model is away.
            logit -= _BIAS / 4
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, logit))))


GATE: Final = 0.5
"""Default threshold; a tenant may set its own."""
