"""Where a text may be cut without breaking what a reader sees as one character."""

from __future__ import annotations

import unicodedata

_ZWJ = "\u200d"
_LOOKBACK = 64
"""No character that people write is longer; what is may be cut anywhere. Even: flags are pairs."""


def _extends(character: str) -> bool:
    code = ord(character)
    return (
        character == _ZWJ
        or 0xFE00 <= code <= 0xFE0F
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
        or unicodedata.combining(character) != 0
        or unicodedata.category(character) in ("Mn", "Me", "Mc")
        or 0xDC00 <= code <= 0xDFFF
    )


def _regional(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def safe_cut(text: str, at: int) -> int:
    """The greatest position <= `at` that is not inside an emoji, accent or flag; at least 1, and
    `at` itself where there is none near."""
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    cut = at
    while cut > 1 and (_extends(text[cut]) or text[cut - 1] == _ZWJ):
        cut -= 1
        if at - cut > _LOOKBACK:
            return at
    if _regional(text[cut]) and _regional(text[cut - 1]):
        run = 0
        while run < _LOOKBACK and cut - run > 0 and _regional(text[cut - run - 1]):
            run += 1
        if run % 2 and cut > 1:
            cut -= 1
    return cut
