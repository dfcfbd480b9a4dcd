"""Normal forms of text that may be hostile."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, Literal

MAX_MARKS: Final = 30
"""Combining marks that one character may carry, as in the stream-safe format of UAX #15."""

_FIRST_MARK: Final = 0x300
_BEYOND_MARKS: Final = 0x1F000


@lru_cache(maxsize=1)
def _piled() -> re.Pattern[str]:
    marks = "".join(
        re.escape(chr(c))
        for c in range(_FIRST_MARK, _BEYOND_MARKS)
        if unicodedata.combining(chr(c))
    )
    return re.compile(f"([{marks}]{{{MAX_MARKS}}})[{marks}]+")


def bounded_marks(text: str) -> str:
    """`text` with at most `MAX_MARKS` combining marks in a row.

    Normalising sorts such a run by insertion: a hundred thousand marks take it minutes.
    """
    # More than MAX_MARKS in a row cover one of these places: most texts need no closer look.
    if text.isascii() or not any(map(unicodedata.combining, text[MAX_MARKS :: MAX_MARKS + 1])):
        return text
    return _piled().sub(r"\1", text)


def normal(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """`unicodedata.normalize` in time linear in the text, whatever it holds."""
    return unicodedata.normalize(form, bounded_marks(text))
