"""How well a sentence answers a question, by words alone: weighted coverage of the question's
terms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from services.common.unicode import mixed
from services.search.tok import tokenize

# Words that ask, recall or fill; they say nothing about what is asked for.
_FILLER = mixed(
    r"上次|上回|之前|以前|刚才|说的|说过|提到|提过|那个|这个|来着|请问|一下|记得|还|吗|呢|叫什么|"
    r"是什么|什么|"
    r"怎么|如何|为什么|哪个|哪些|多少|有没有|"
    r"\b(what|which|who|how|why|where|when|was|were|is|are|do|does|did|the|that|this|again|called|"
    r"last time|"
    r"please|tell me|remember|you|me|my|i|we|said|mentioned)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Scored:
    """A candidate's place in the list and its coverage, 0 to 1."""

    index: int
    score: float


def terms(question: str) -> set[str]:
    """The terms of a question that carry its subject; all of them where filler is all there is."""
    kept = set(tokenize(_FILLER.sub(" ", question)))
    return kept or set(tokenize(question))


def coverage(question: str, candidates: Sequence[str]) -> list[Scored]:
    """Every candidate with the weighted share of the question's terms that it holds, best
    first.
    """
    wanted = terms(question)
    held = [wanted.intersection(tokenize(text)) for text in candidates]
    frequency = Counter(term for one in held for term in one)
    count = max(1, len(candidates))
    # A pool of a few sentences gives no usable idf: a term's weight falls from 1 (in none or one of
    # many) to 1/2 (in all of them).
    weight = {term: 1 / (1 + frequency[term] / count) for term in wanted}
    whole = sum(weight.values()) or 1.0
    scored = [Scored(i, sum(weight[t] for t in one) / whole) for i, one in enumerate(held)]
    return sorted(scored, key=lambda s: -s.score)
