"""From a model's raw score to [0, 1]."""

from __future__ import annotations

import math

from services.embedder.model import Calibration

# Logit of the calibrated score that the outer anchors get: 0.05 and 0.95.
_EDGE = math.log(0.95 / 0.05)


def calibrated(raw: float, anchors: Calibration) -> float:
    """A logistic curve through the anchors: 0.05 at `unrelated`, 0.5 at `relevant`, 0.95 at
    `exact`.

    Strictly increasing as far as doubles go, so that calibrating never makes ties; steeper on the
    side whose anchor is nearer.
    """
    centred = raw - anchors.relevant
    span = (
        anchors.exact - anchors.relevant if centred >= 0 else anchors.relevant - anchors.unrelated
    )
    exponent = -_EDGE * centred / span
    if exponent > 700:
        return 0.0
    return 1.0 / (1.0 + math.exp(exponent))
