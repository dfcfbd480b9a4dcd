"""Which scripts a text uses, and when a query is short: characters in Chinese, words in English."""

from __future__ import annotations

import re
from typing import Final

from services.common import unicode

# Han (with extensions A and B and the compatibility block), the iteration mark and 〇.
HAN: Final = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Kana and Hangul are written without reliable word breaks too and share the bigram treatment.
KANA_HANGUL: Final = r"\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af\u1100-\u11ff"

_HAN_CHAR: Final = re.compile(f"[{HAN}]")
_CJK_CHAR: Final = re.compile(f"[{HAN}{KANA_HANGUL}]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORD: Final = re.compile(rf"[^\W_{HAN}{KANA_HANGUL}]+")
_LETTERED: Final = re.compile(
    rf"(?<![^\W_{HAN}{KANA_HANGUL}])\d*[^\W\d_{HAN}{KANA_HANGUL}][^\W_{HAN}{KANA_HANGUL}]*"
)
# Zero-width and soft characters that people paste without seeing them, bidi marks included.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]"
)

SHORT_QUERY_CHARACTERS: Final = 6
SHORT_QUERY_WORDS: Final = 3


def normalise(text: str) -> str:
    """NFKC without zero-width characters; case is kept (camelCase still has to be seen). Half a
    surrogate pair becomes the replacement character, as nothing that follows could encode it."""
    # Invisible characters go first: one inside a composed pair would keep NFKC from joining it.
    return unicode.normal("NFKC", _SURROGATE.sub("\ufffd", _INVISIBLE.sub("", text)))


def is_chinese(text: str) -> bool:
    """True when Chinese carries the text. A word of Latin script weighs as one character."""
    han = len(_HAN_CHAR.findall(text))
    return han > 0 and han >= len(_WORD.findall(text))


def han_and_words(text: str) -> tuple[int, int]:
    """(Han characters, words of other scripts) of a text. Letters and digits in a row are one word,
    as in an id; digits alone are none."""
    return len(_HAN_CHAR.findall(text)), len(_LETTERED.findall(text))


def query_length(text: str) -> tuple[int, int]:
    """(CJK characters, words of other scripts) of a text; `split()` sees no Chinese words."""
    return len(_CJK_CHAR.findall(text)), len(_WORD.findall(text))


def is_short_query(text: str) -> bool:
    """The short-query rule: up to 6 characters in Chinese, up to 3 words in English.

    In a mixed query each word counts as two characters: `R6900 内存` is short,
    `R6900 服务器 支持多少内存` is not.
    """
    characters, words = query_length(text)
    if characters == 0:
        return words <= SHORT_QUERY_WORDS
    return characters + 2 * words <= SHORT_QUERY_CHARACTERS
