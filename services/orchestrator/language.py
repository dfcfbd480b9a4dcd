"""Which language an answer is in."""

from __future__ import annotations

from services.orchestrator.domain import Language
from services.search.language import is_chinese


def detect(text: str) -> Language:
    """zh where Chinese carries the text, else en. Mixed questions count as zh."""
    return "zh" if is_chinese(text) else "en"


def choose(tag: str, text: str) -> Language:
    """The language a BCP 47 tag asks for; an empty or unknown tag leaves it to the text."""
    prefix = tag.lower().split("-", 1)[0]
    if prefix == "zh":
        return "zh"
    return "en" if prefix == "en" else detect(text)
