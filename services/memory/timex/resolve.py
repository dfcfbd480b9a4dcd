"""Resolve every time expression of a text against the time it was said."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dateparser  # type: ignore[import-untyped]

from services.common.unicode import mixed
from services.memory.script import folded
from services.memory.timex import chinese, english
from services.memory.timex.spans import Span, Window

# What the rules lack and the library knows: clock times alone, and numeric dates with a named month
# in other orders.
_LIBRARY: Final = mixed(
    r"\b(?:at|around|by)\s+(?P<clock>\d{1,2}(?::\d{2})?\s*[ap]\.?m\b\.?|\d{1,2}:\d{2})",
    re.IGNORECASE,
)
_MAX_CHARACTERS: Final = 4_000


def zone_of(name: str) -> ZoneInfo | None:
    """The IANA zone of that name, or None if there is none ("" is UTC)."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def resolve(text: str, said_at: datetime, time_zone: str = "UTC") -> list[Span]:
    """Time expressions of `text` in order, resolved against `said_at` (aware) in the user's zone.

    Expressions do not overlap; of two readings the longer one is taken. Numbers that only look like
    years ("port 9077") give nothing. Results carry the user's zone.
    """
    text = text[:_MAX_CHARACTERS]
    seen = folded(text)
    now = said_at.astimezone(zone_of(time_zone) or ZoneInfo("UTC"))
    found: list[Span] = []
    for hint, rules in ((chinese.HINT, chinese.RULES), (english.HINT, english.RULES)):
        if not hint.search(seen):
            continue
        for pattern, make in rules:
            for match in pattern.finditer(seen):
                try:
                    window = make(match, now)
                except (ValueError, OverflowError):
                    window = None
                if window is not None:
                    words = text[match.start() : match.end()]
                    found.append(window.tied(words, match.start()))
    found += _by_library(text, now)
    return _without_overlaps(found)


def _by_library(text: str, now: datetime) -> list[Span]:
    out: list[Span] = []
    for match in _LIBRARY.finditer(text):
        parsed = dateparser.parse(
            match["clock"],
            languages=["en"],
            settings={
                "RELATIVE_BASE": now.replace(tzinfo=None),
                "PREFER_DATES_FROM": "current_period",
            },
        )
        if parsed is not None:
            start = parsed.replace(tzinfo=now.tzinfo)
            window = Window(start, start + timedelta(minutes=1), start, clock_known=True)
            out.append(window.tied(match.group(), match.start()))
    return out


def _without_overlaps(found: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in sorted(found, key=lambda s: (-len(s.text.strip()), s.at)):
        if all(span.stop <= k.at or k.stop <= span.at for k in kept):
            kept.append(span)
    return sorted(kept, key=lambda s: s.at)
