"""Tokenizer `tok/v1`: one function for documents and queries, Chinese and English alike.

The version is stored with every index. What a text turns into:

- NFKC, zero-width characters out, casefold;
- traditional characters folded to simplified ones, for both sides: keeping the traditional form as
  a further token counts every match twice and cost 0.6 points of nDCG@10 on DRCD;
- a Han run: overlapping bigrams and the words of `rjieba` in search mode. A run of one character
  is that character. Kana and Hangul: bigrams. Bigrams never cross a separator;
- a Latin or digit run: the whole identifier, its parts (separators, camelCase, letter against
  digit) and the joined form, so that `R6900 G5`, `R6900G5` and `r6900-g5` meet; English words as
  Snowball stems;
- dates: normalised tokens (`dates.py`);
- stop words of both languages left out.

Never the subwords of an embedding model: they change with the model.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import rjieba
import snowballstemmer

from services.common import unicode
from services.search import stopwords
from services.search.dates import date_tokens
from services.search.language import HAN, KANA_HANGUL, normalise
from services.search.simplified import simplify

TOK_VERSION: Final = "tok/v1"
MAX_TERM_CHARACTERS: Final = 64
"""A longer term (base64, a hash dump) is cut: it can still be found by its beginning."""

_RUN: Final = re.compile(
    rf"(?P<han>[{HAN}]+)|(?P<kana>[{KANA_HANGUL}]+)"
    rf"|(?P<ident>[^\W_{HAN}{KANA_HANGUL}]+(?:[-_./:+&'’][^\W_{HAN}{KANA_HANGUL}]+)*(?:\+\+|#)?)"
)
_SEPARATOR: Final = re.compile(r"[-_./:+&'’]")
_CAMEL: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")
_JOIN_LIMIT: Final = 16
# Possessives and contractions: "Caroline's", "don't", "we'll".
_CONTRACTION: Final = re.compile(r"['’](?:s|t|re|ve|ll|d|m)$", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # A stemmer holds the word it works on: one that threads share gives them each other's stems.
    return str(snowballstemmer.stemmer("english").stemWord(word))


def _unaccent(word: str) -> str:
    if word.isascii():
        return word
    decomposed = unicode.normal("NFD", word)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _bigrams(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _han(run: str) -> Iterator[str]:
    """Bigrams and words of the simplified run. A bigram that is a word too counts twice, which
    measures better than either alone; bigrams made of two stop characters say nothing."""
    for bigram in _bigrams(run):
        if bigram not in stopwords.CHINESE and not all(c in stopwords.CHINESE for c in bigram):
            yield bigram
    if len(run) > 1:
        for word in rjieba.cut_for_search(run):
            if len(word) > 1 and word not in stopwords.CHINESE:
                yield word


def _word(part: str) -> str | None:
    """A single part as a term: stop words out, English stemmed."""
    if part in stopwords.ENGLISH or not part:
        return None
    return _stem(part) if part.isascii() and part.isalpha() else part


def _identifier(run: str) -> Iterator[str]:
    whole = _unaccent(_CONTRACTION.sub("", run))
    parts = [p for p in _SEPARATOR.split(whole) if p]
    simple = len(parts) == 1
    pieces = [piece for p in parts for piece in _CAMEL.findall(p)] if parts else []
    folded = whole.casefold()
    if simple and len(pieces) <= 1:
        term = _word(folded)
        if term is not None:
            yield term
        return
    joined = "".join(p.casefold() for p in parts)
    yield joined
    if folded != joined:
        yield folded
    sub_parts = [p.casefold() for p in parts] if not simple else []
    emitted = {joined, folded}
    for part in [*sub_parts, *(p.casefold() for p in pieces)]:
        term = _word(part)
        if term is not None and term not in emitted and (len(term) > 1 or term.isdigit()):
            emitted.add(term)
            yield term
    # `2024-1234` must find `CVE-2024-1234` before `CVE-1234-2024`.
    for left, right in itertools.pairwise(sub_parts):
        if len(sub_parts) > 2 and (left + right) not in emitted:
            emitted.add(left + right)
            yield left + right


def _joins_with(left: str, right: str) -> bool:
    """Model numbers written with a space: at least one side has a digit, one has a letter."""
    if len(left) + len(right) > _JOIN_LIMIT or not (left.isalnum() and right.isalnum()):
        return False
    if left.casefold() in stopwords.ENGLISH or right.casefold() in stopwords.ENGLISH:
        return False
    both = left + right
    return any(c.isdigit() for c in both) and any(c.isalpha() for c in both)


def tokenize(text: str) -> list[str]:
    """Terms of `text` (version `TOK_VERSION`), duplicates kept: their count is the frequency.

    Deterministic, never raises for any `str`; an empty list for text without letters or digits.
    """
    clean = simplify(normalise(text))
    dates, masked = date_tokens(clean)
    out: list[str] = []
    previous: tuple[int, str] | None = None
    for match in _RUN.finditer(masked):
        run = match.group()
        if match.lastgroup == "han":
            out.extend(_han(run))
            previous = None
        elif match.lastgroup == "kana":
            out.extend(_bigrams(run.casefold()))
            previous = None
        else:
            if run.isascii() and run.isalpha() and run.islower():
                # A plain word, as most are, has no parts.
                if (plain := _word(run)) is not None:
                    out.append(plain)
            else:
                out.extend(_identifier(run))
            if (
                previous is not None
                and not (run.isalpha() and previous[1].isalpha())
                and masked[previous[0] : match.start()] == " "
                and _joins_with(previous[1], run)
            ):
                out.append(_unaccent((previous[1] + run).casefold()))
            previous = (match.end(), run)
    out.extend(dates)
    return [t if len(t) <= MAX_TERM_CHARACTERS else t[:MAX_TERM_CHARACTERS] for t in out]


def query_terms(text: str, limit: int = 2_000) -> list[str]:
    """Distinct terms of a query in order of appearance, at most `limit` (a pasted log is long)."""
    return list(dict.fromkeys(tokenize(text)))[:limit]
