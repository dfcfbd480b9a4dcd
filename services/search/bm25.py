"""BM25 with Lucene's idf: the formula, and an index in RAM for small scopes.

Robertson/Sparck Jones BM25 with the idf of Lucene, `ln(1 + (N - n + 0.5) / (n + 0.5))`, which is
never negative, k1 = 0.9 and b = 0.4 (Anserini's setting). `postings.py` scores large scopes and
gives the same numbers; a property test holds both to `reference_scores`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from services.search.tok import query_terms, tokenize
from services.search.types import Leg, LegResult, LegState

K1: Final = 0.9
B: Final = 0.4


def idf(documents: int, document_frequency: int) -> float:
    """Lucene's idf of a term in `document_frequency` of `documents`; > 0 always."""
    return math.log1p((documents - document_frequency + 0.5) / (document_frequency + 0.5))


def term_scores(
    term_idf: float, tf: NDArray[Any], length: NDArray[Any], mean_length: float
) -> NDArray[np.float64]:
    """A term's part of BM25 per document. tf, length: (n,); returns (n,) float64."""
    norm = K1 * (1.0 - B + B * np.asarray(length, np.float64) / max(mean_length, 1e-9))
    frequency = np.asarray(tf, np.float64)
    return term_idf * frequency * (K1 + 1.0) / (frequency + norm)


def query_weight(document_frequencies: Iterable[int], documents: int) -> float:
    """Score of a perfect match: all query terms with saturated frequency.

    Give 0 for a term that the scope does not know: it weighs most, and keeps the lexical leg from
    claiming confidence about a query in another language.
    """
    return (K1 + 1.0) * sum(idf(documents, n) for n in document_frequencies)


def reference_scores(documents: Sequence[Sequence[str]], query: Sequence[str]) -> list[float]:
    """BM25 of every document by the plain formula: slow, obvious, what the indexes must equal."""
    count = len(documents)
    mean = sum(map(len, documents)) / count if count else 0.0
    frequencies = [Counter(d) for d in documents]
    scores = [0.0] * count
    for term in dict.fromkeys(query):
        n = sum(1 for f in frequencies if term in f)
        for i, f in enumerate(frequencies):
            tf = f[term]
            if tf:
                norm = K1 * (1.0 - B + B * len(documents[i]) / mean)
                scores[i] += idf(count, n) * tf * (K1 + 1.0) / (tf + norm)
    return scores


class _Okapi(BM25Okapi):  # type: ignore[misc]
    """rank-bm25 with Lucene's idf: its own is 0 at n = N/2 and negative above."""

    def _calc_idf(self, nd: Mapping[str, int]) -> None:
        self.idf = {term: idf(self.corpus_size, n) for term, n in nd.items()}


class RamIndex:
    """Immutable BM25 index of a small scope (one document, one user; up to about 2,000 items).

    rank-bm25 counts and weighs; scoring goes over postings built once, because its own loop
    visits every document for every query term. Safe for concurrent readers.
    """

    def __init__(self, ids: Sequence[str], documents: Sequence[Sequence[str]]) -> None:
        if len(ids) != len(documents):
            raise ValueError(f"{len(ids)} ids for {len(documents)} documents")
        self.ids = tuple(ids)
        self._postings: dict[str, tuple[NDArray[np.int32], NDArray[np.float64]]] = {}
        self.tokens = sum(map(len, documents))
        if self.tokens == 0:  # rank-bm25 divides by the corpus size and by the mean length
            return
        okapi = _Okapi([list(d) for d in documents], k1=K1, b=B)
        lengths = np.asarray(okapi.doc_len, np.float64)
        rows: dict[str, list[tuple[int, int]]] = {}
        for row, frequencies in enumerate(okapi.doc_freqs):
            for term, tf in frequencies.items():
                rows.setdefault(term, []).append((row, tf))
        for term, entries in rows.items():
            index = np.fromiter((r for r, _ in entries), np.int32, len(entries))
            tfs = np.fromiter((f for _, f in entries), np.float64, len(entries))
            scores = term_scores(okapi.idf[term], tfs, lengths[index], okapi.avgdl)
            self._postings[term] = (index, scores)

    @classmethod
    def of_texts(cls, texts: Iterable[tuple[str, str]]) -> RamIndex:
        """Index of (id, text) pairs, tokenised with `tok/v1`."""
        pairs = list(texts)
        return cls([i for i, _ in pairs], [tokenize(t) for _, t in pairs])

    def __len__(self) -> int:
        return len(self.ids)

    def scores(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """BM25 of all documents for distinct `terms`: (n,) float64, 0 where no term matches."""
        out = np.zeros(len(self.ids), np.float64)
        for term in dict.fromkeys(terms):
            if (posting := self._postings.get(term)) is not None:
                out[posting[0]] += posting[1]
        return out

    def held(self, query: str) -> dict[str, float]:
        """Share of the query's terms that each document holds, (0,1]; no entry for none."""
        terms = query_terms(query)
        counts = np.zeros(len(self.ids), np.int64)
        for term in terms:
            if (posting := self._postings.get(term)) is not None:
                counts[posting[0]] += 1
        return {self.ids[row]: int(counts[row]) / len(terms) for row in np.flatnonzero(counts)}

    def document_frequency(self, term: str) -> int:
        """Number of documents that hold the term."""
        posting = self._postings.get(term)
        return 0 if posting is None else len(posting[0])

    def leg(
        self,
        query: str,
        k: int,
        among: frozenset[str] | None = None,
        extra: Iterable[str] = (),
    ) -> LegResult:
        """The lexical leg: best `k` items with a score above 0, within `among` if given.

        `extra`: ids of other legs' candidates whose score is wanted too.
        """
        terms = query_terms(query)
        if not terms or not self.ids:
            return LegResult(Leg.LEXICAL, state=LegState.SKIPPED, reason="no terms to look for")
        scores = self.scores(terms)
        if among is not None:
            mask = np.fromiter((i in among for i in self.ids), np.bool_, len(self.ids))
            scores = np.where(mask, scores, 0.0)
        matched = np.flatnonzero(scores > 0.0)
        if len(matched) > k:
            best = np.argpartition(scores[matched], -k)[-k:]
            matched = matched[best]
        wanted = set(extra)
        more = (
            {i: float(scores[row]) for row, i in enumerate(self.ids) if i in wanted}
            if wanted
            else {}
        )
        return LegResult(
            Leg.LEXICAL,
            scores={self.ids[row]: float(scores[row]) for row in matched},
            extra={i: s for i, s in more.items() if s > 0.0},
            query_weight=query_weight(map(self.document_frequency, terms), len(self.ids)),
        )
