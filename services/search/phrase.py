"""The phrase leg: exact and near-exact phrases and identifiers, judged on normalised text.

BM25 knows that words occur; this leg knows that they stand together. A store prefilters with
`needles` (substring or trigram search, or the lexical candidates) and judges with `score`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.search.language import HAN, KANA_HANGUL, normalise
from services.search.simplified import simplify
from services.search.types import Leg, LegResult, LegState

_QUOTED: Final = re.compile(r"[\"“”「『《'‘]([^\"“”「」『』《》'‘’]{2,80})[\"“”」』》'’]")
_SPACES: Final = re.compile(r"\s+")
_NOT_WORD: Final = re.compile(r"[^\w@#+]+")
# A token with a digit and another kind of character, or with an inner separator: a model number, a
# ticket, a version.
_IDENTIFIER: Final = re.compile(rf"[^\W_{HAN}{KANA_HANGUL}]+(?:[-_./:][^\W_{HAN}{KANA_HANGUL}]+)*")
_MAX_NEEDLES: Final = 16
_MAX_PHRASE: Final = 64
_TEXT_LIMIT: Final = 20_000


def _flat(text: str) -> str:
    """Comparable form: normalised, simplified, lower case, separators of any kind as one space."""
    return _NOT_WORD.sub(" ", simplify(normalise(text)).casefold()).strip()


def _tight(flat: str) -> str:
    return flat.replace(" ", "").replace("_", "")


def is_identifier(token: str) -> bool:
    """True for names of one thing: `INV-20931`, `R6900`, `v1.2.3`, `311992D3`."""
    core = token.strip("-_./:")
    if len(core) < 3:
        return False
    digits = sum(c.isdigit() for c in core)
    if digits and any(c.isalpha() for c in core):
        return True
    return digits >= 5 or bool(digits and re.search(r"\d[-_./:]\d", core))


@dataclass(frozen=True)
class Needles:
    """What a query looks for. All in the comparable form without spaces, for substring search."""

    whole: str
    """The whole query, "" when it is too long or too short to be a phrase."""
    quoted: tuple[str, ...]
    identifiers: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.whole or self.quoted or self.identifiers)


def needles(query: str) -> Needles:
    """Phrases and identifiers of a query; falsy when there is nothing to look for."""
    clean = _SPACES.sub(" ", normalise(query[:_TEXT_LIMIT]))
    whole = _tight(_flat(clean)) if len(clean) <= _MAX_PHRASE else ""
    quoted = dict.fromkeys(_tight(_flat(q)) for q in _QUOTED.findall(clean))
    found = dict.fromkeys(_tight(_flat(t)) for t in _IDENTIFIER.findall(clean) if is_identifier(t))
    return Needles(
        whole=whole if len(whole) >= 2 else "",
        quoted=tuple(q for q in quoted if len(q) >= 2)[:_MAX_NEEDLES],
        identifiers=tuple(i for i in found if len(i) >= 3)[:_MAX_NEEDLES],
    )


def searchable(text: str) -> str:
    """The comparable form of a text as `score` sees it; a store may keep and index it."""
    return _tight(_flat(text[:_TEXT_LIMIT]))


def score(wanted: Needles, haystack: str) -> float:
    """How exactly a text holds what is wanted: [0,1]. `haystack` comes from `searchable`.

    1.0 the whole query; 0.9 every quoted phrase; up to 0.8 identifiers by their share; 0 else.
    """
    if wanted.whole and wanted.whole in haystack:
        return 1.0
    best = 0.0
    if wanted.quoted:
        held = sum(q in haystack for q in wanted.quoted)
        best = 0.9 * held / len(wanted.quoted)
    if wanted.identifiers:
        held = sum(i in haystack for i in wanted.identifiers)
        best = max(best, 0.8 * held / len(wanted.identifiers))
    return best


def leg(query: str, haystacks: Mapping[str, str], k: int) -> LegResult:
    """The phrase leg over prefiltered candidates: id -> `searchable` text."""
    wanted = needles(query)
    if not wanted:
        return LegResult(Leg.PHRASE, state=LegState.SKIPPED, reason="no phrase in the query")
    found = {i: s for i, h in haystacks.items() if (s := score(wanted, h)) > 0.0}
    best = sorted(found, key=lambda i: (-found[i], i))[:k]
    return LegResult(Leg.PHRASE, scores={i: found[i] for i in best})
