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


def mixed(pattern: str, flags: int = 0, *, words: bool = True) -> re.Pattern[str]:
    r"""`pattern` compiled for text that mixes scripts: `\b` is an edge of an ASCII word, and with
    `words` `\w` is a character of one.

    To Unicode 是 and the letter after it are one word: a `\b` between them finds no edge, a `\w*`
    runs on into the Chinese. Leave `words` off where accented letters have to be matched. `\W`
    stays as it is. Raises ValueError for a `\W` in a character class whose `\w` would change.
    """
    return re.compile(_ESCAPES.sub(lambda m: _ascii(m.group(), words), pattern), flags)


_ESCAPES: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def _ascii(token: str, words: bool) -> str:
    if token == r"\b" or (words and token == r"\w"):
        return f"(?a:{token})"
    if token[0] != "[" or not words:
        return token
    if r"\W" in token:
        raise ValueError(f"no ASCII form of {token}")
    return token.replace(r"\w", "A-Za-z0-9_")
