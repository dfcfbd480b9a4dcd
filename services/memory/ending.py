"""Which known value a statement that something is over speaks of.

"We stopped using Go" is about Go and Go 1.21, not about Django, MongoDB or Google Docs: values are
compared word by word, never by the letters that they share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import rjieba

from services.memory.keys import value_key
from services.memory.script import folded
from services.search.language import HAN

# What is done with a thing does not make it another: 喝咖啡 and 咖啡, "drinking tea" and "tea".
_DOING: Final = re.compile(
    r"^(?:喝|吃|用|玩|打|听|看|读|学习?|做|去|使用)(?=[^\s]{2})"
    r"|^(?:to )?(?:(?:drink|eat|play|watch|read|do)(?:ing)?|(?:us|tak|mak)(?:e|ing)"
    r"|listen(?:ing)? to) (?=\S)",
    re.IGNORECASE,
)
_WORD: Final = re.compile(rf"(?P<han>[{HAN}]+)|[^\W_{HAN}]+(?:[-_./:+&'’][^\W_{HAN}]+)*(?:\+\+|#)?")
_SHORT_NAME: Final = re.compile(rf"[{HAN}]{{2,}}")
# After one of these comes where or what for, not what.
_CONTEXT: Final = frozenset(
    ["for", "at", "in", "on", "with", "to", "as", "during", "来", "做", "写", "记"]
)
_VERSION: Final = re.compile(r"v?\d[\w.-]*", re.IGNORECASE)


def ends(ended: str, known: str, *, only: bool = False) -> bool:
    """Whether `ended`, which is said to be over, is the value `known`: both the same, `known` a
    kind or version of it ("tea", "green tea"), or `ended` the same with its circumstances ("Slack
    at work"). A longer name is another thing: 企业微信 is not 微信, Google Docs is not Google; but
    where there is `only` one value at a time, a name may be cut short: 字节 for 字节跳动."""
    if value_key(ended) == value_key(known):
        return True
    gone, held = _words(ended), _words(known)
    at = _place(gone, held)
    if only and (at == 0 or _place(held, gone) == 0 or _cut_short(ended, known)):
        return True
    if at is not None:
        return all(_describes(word) for word in (*held[:at], *held[at + len(gone) :]))
    at = _place(held, gone)
    if at != 0:
        return False
    return gone[len(held)].casefold() in _CONTEXT


def _cut_short(one: str, other: str) -> bool:
    """Whether one of two Chinese names is the beginning of the other."""
    short, long = sorted((folded(one).strip(), folded(other).strip()), key=len)
    return _SHORT_NAME.fullmatch(short) is not None and long.startswith(short)


def _words(value: str) -> list[str]:
    """Words as they are written; Chinese ones as the tokenizer cuts them."""
    plain = _DOING.sub("", folded(value).strip())
    out: list[str] = []
    for match in _WORD.finditer(plain):
        out += rjieba.cut(match.group()) if match["han"] else [match.group()]
    return out


def _place(part: Sequence[str], whole: Sequence[str]) -> int | None:
    """Where the words of `part` stand together in `whole`."""
    needle = [word.casefold() for word in part]
    hay = [word.casefold() for word in whole]
    if not needle:
        return None
    starts = range(len(hay) - len(needle) + 1)
    return next((i for i in starts if hay[i : i + len(needle)] == needle), None)


def _describes(word: str) -> bool:
    """A version, or a word that is not written as a name."""
    return bool(_VERSION.fullmatch(word)) or (word.isascii() and word.islower())
