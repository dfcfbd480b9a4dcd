"""Factors beside relevance: quality of a chunk's kind, and age."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from services.search.language import query_length

QUALITY: Final[Mapping[str, float]] = {
    "abstract": 1.05,
    "paragraph": 1.02,
    "table": 1.0,
    "code": 1.0,
    "title": 0.85,
    "teaser": 0.85,
    "notes": 0.85,
}
SHORT_CHUNK: Final = 0.8
_SHORT_CHARS: Final = 80
_SHORT_UNITS: Final = 8


def quality(kind: str, text: str) -> float:
    """Factor of a chunk kind: abstracts and paragraphs up, titles, teasers and notes down.

    A very short text (under 8 units: a Chinese character is one, a word two) goes down too, since
    such chunks match much and say little. An unknown kind or an unknown text is neutral.
    """
    factor = QUALITY.get(kind, 1.0)
    # Measuring every long text would cost more than the fusion.
    if text and len(text) < _SHORT_CHARS:
        characters, words = query_length(text)
        if characters + 2 * words < _SHORT_UNITS:
            factor *= SHORT_CHUNK
    return factor


def decay(
    then: datetime | None, now: datetime | None, half_life_days: float, floor: float
) -> float:
    """Bounded half-life decay in [floor, 1]: `floor + (1 - floor) * 0.5 ** (age / half life)`.

    The floor lets an exact old hit still win. No time, no half-life or a future time: 1.
    """
    if then is None or now is None or half_life_days <= 0.0:
        return 1.0
    age_days = max(0.0, (now - then).total_seconds() / 86_400.0)
    return floor + (1.0 - floor) * float(0.5 ** (age_days / half_life_days))
