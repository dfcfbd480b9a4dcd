"""Whether a text says no, in Chinese and English."""

from __future__ import annotations

import re
from typing import Final

import rjieba

from services.search.language import HAN
from services.search.simplified import simplify

_RUN: Final = re.compile(rf"[{HAN}]+")
_CHARACTER: Final = re.compile("[不没无未非]")
# Words that hold one of these characters and deny nothing. Only ever looked for inside a word:
# 不同 is harmless, while 不 before 同意 is not.
_HARMLESS: Final = re.compile(
    "非常|非洲|[东南西北]非|是非|除非|莫非|非得"
    "|未来|未婚"
    "|无线|无锡|无论|无数|无疑|无比|无非|无限|无形|无辜|无偿"
    "|不仅|不但|不单|不只|不光|不同|不断|不过|不管|不论|不久|不少|不妨|不料|不愧|不禁|不时"
    "|不得不|不可避免|不错|不锈|不等式|不动产|差不多|要不"
    "|没收|没落|出没|淹没|埋没|沉没|覆没|吞没"
)
_ENGLISH: Final = re.compile(
    r"\bnot\b(?!\s+(?:only|just|merely|least)\b)|\bno\b(?!\s+doubt\b|\.\s*\d)"
    r"|\b(?:never|none|nothing|nobody|neither|nor|cannot|without)\b|n['’]t\b",
    re.IGNORECASE,
)


def negates(text: str) -> bool:
    """True where a word of `text` denies something. Chinese is cut into words first: 非常 ("very"),
    未来 ("future") or 无线 ("wireless") hold a character of negation without being one."""
    if _ENGLISH.search(text):
        return True
    simple = simplify(text)
    if not _CHARACTER.search(simple):
        return False
    words = (word for run in _RUN.findall(simple) for word in rjieba.cut(run))
    return any(_CHARACTER.search(_HARMLESS.sub("", word)) for word in words)
