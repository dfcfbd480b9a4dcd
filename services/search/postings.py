"""Packed postings: the storage form of large lexical scopes and their scoring in numpy.

A posting list is bytes: per entry an item (uint32 ordinal within the scope), its frequency (uint16)
and the item's length in tokens (uint16), as three little-endian columns. The length stands beside
the frequency so that one read per term is all a query needs. A store keeps, per (scope, term,
segment), such bytes; per (scope, term) the document frequency; per scope the item count and the
sum of lengths. Delta rows are further segments of the same term, dead items a set of ordinals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.search.bm25 import K1, idf, term_scores

_MAX_U16: Final = 65_535
ENTRY_BYTES: Final = 8
_DENSE_SPAN: Final = 1 << 20
_FEW: Final = 8
_CHECKS: Final = 32
Rows = NDArray[np.intp]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Postings:
    """One term's entries, ascending by item. All arrays (n,)."""

    items: NDArray[np.uint32]
    tfs: NDArray[np.uint16]
    lengths: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.items)


def length_of(tokens: int) -> int:
    """The item length that BM25 uses: the number of tokens, at most 65,535."""
    return min(tokens, _MAX_U16)


def pack(items: Sequence[int], tfs: Sequence[int], lengths: Sequence[int]) -> bytes:
    """Bytes of a posting list, sorted by item; frequency and length saturate at 65,535."""
    if not len(items) == len(tfs) == len(lengths):
        raise ValueError("items, frequencies and lengths differ in number")
    order = np.argsort(np.asarray(items, np.int64), kind="stable")
    column = np.asarray(items, np.uint32)[order]
    if len(column) > 1 and bool((column[1:] == column[:-1]).any()):
        raise ValueError("an item stands twice in one posting list")
    frequency = np.minimum(np.asarray(tfs, np.int64)[order], _MAX_U16).astype("<u2")
    length = np.minimum(np.asarray(lengths, np.int64)[order], _MAX_U16).astype("<u2")
    return column.astype("<u4").tobytes() + frequency.tobytes() + length.tobytes()


def unpack(data: bytes | memoryview) -> Postings:
    """The list packed in `data`, without copying. Raises ValueError for a broken one."""
    count, rest = divmod(len(data), ENTRY_BYTES)
    if rest:
        raise ValueError(f"{len(data)} bytes are no posting list")
    return Postings(
        items=np.frombuffer(data, "<u4", count),
        tfs=np.frombuffer(data, "<u2", count, offset=4 * count),
        lengths=np.frombuffer(data, "<u2", count, offset=6 * count),
    )


def merge(parts: Iterable[Postings], dead: NDArray[np.uint32] | None = None) -> bytes:
    """Segments of one term as one list without dead items; a later part wins over an earlier."""
    lists = [p for p in parts if len(p)]
    if not lists:
        return b""
    items = np.concatenate([p.items for p in lists])
    tfs = np.concatenate([p.tfs for p in lists])
    lengths = np.concatenate([p.lengths for p in lists])
    _, last = np.unique(items[::-1], return_index=True)
    keep = len(items) - 1 - last
    if dead is not None and len(dead):
        keep = keep[~np.isin(items[keep], dead)]
    return pack(items[keep].tolist(), tfs[keep].tolist(), lengths[keep].tolist())


@dataclass(frozen=True)
class TermPostings:
    """All segments of one query term, with its document frequency in the scope. An item stands in
    one segment at most."""

    document_frequency: int
    parts: Sequence[Postings]

    def joined(self) -> Postings:
        """The segments as one list: many short ones cost more in calls than in work."""
        parts = sorted((p for p in self.parts if len(p)), key=lambda p: int(p.items[0]))
        if len(parts) == 1:
            return parts[0]
        items = np.concatenate([p.items for p in parts])
        tfs = np.concatenate([p.tfs for p in parts])
        lengths = np.concatenate([p.lengths for p in parts])
        if any(a.items[-1] >= b.items[0] for a, b in itertools.pairwise(parts)):
            order = np.argsort(items, kind="stable")  # their ranges of items overlap
            items, tfs, lengths = items[order], tfs[order], lengths[order]
        return Postings(items, tfs, lengths)


def common(items: NDArray[np.uint32], others: NDArray[np.uint32]) -> int:
    """How many item numbers two ascending lists share."""
    short, long = (items, others) if len(items) < len(others) else (others, items)
    return int(_places(long, short)[1].sum()) if len(short) else 0


@dataclass(frozen=True)
class Query:
    """The terms of one question over one scope, from rare to common. `weights`: their idf.

    `mean`: items' mean length. `dead`, `among`: ascending; items that may not, or alone may, be
    returned (`among` None: all may).
    """

    terms: Sequence[Postings]
    weights: Sequence[float]
    sums: Sequence[float]
    """Of the weights from each term on; 0 after the last."""
    mean: float
    dead: NDArray[np.uint32]
    among: NDArray[np.uint32] | None

    @classmethod
    def of(
        cls,
        terms: Sequence[TermPostings],
        documents: int,
        total_length: int,
        dead: NDArray[np.uint32] | None = None,
        among: NDArray[np.uint32] | None = None,
    ) -> Query:
        """Prepares the question; `total_length` is the sum of the items' lengths."""
        known = sorted(
            (t for t in terms if t.document_frequency > 0 and any(map(len, t.parts))),
            key=lambda t: t.document_frequency,
        )
        if documents <= 0:
            known = []
        weights = [idf(documents, min(t.document_frequency, documents)) for t in known]
        sums = list(itertools.accumulate(reversed(weights), initial=0.0))
        return cls(
            terms=[t.joined() for t in known],
            weights=weights,
            sums=sums[::-1],
            mean=total_length / documents if documents > 0 else 0.0,
            dead=np.empty(0, np.uint32) if dead is None else np.unique(dead),
            among=None if among is None else np.unique(among),
        )

    @property
    def entries(self) -> int:
        """Posting entries in all: what scoring costs."""
        return sum(map(len, self.terms))

    def best(self, k: int) -> tuple[NDArray[np.uint32], Scores]:
        """Exact BM25 top `k`: (items (m,), scores (m,)), m <= k, best first, ties by item.

        Terms go from rare to common. Once the k-th best score exceeds what all remaining terms
        could add to an unseen item, those only complete the scores of seen ones (MaxScore, Turtle
        and Flood 1995): the long lists of common words are looked up in, not read.
        """
        if k <= 0 or not self.terms:
            return np.empty(0, np.uint32), np.empty(0, np.float64)
        few = self.among is not None and len(self.among) * _FEW <= self.entries
        items, scores, done = (self._chosen(), None, 0) if few else self._merged(k)
        if scores is None:
            scores = np.zeros(len(items), np.float64)
        for number in range(done, len(self.terms)):
            scores += self._scores_of(number, items)
            bound = _kth(scores, k) - self._rest(number + 1)
            if bound > 0.0:
                keep = scores >= bound
                items, scores = items[keep], scores[keep]
        matched = scores > 0.0
        return _best(items[matched], scores[matched], k)

    def scores_of(self, items: Sequence[int]) -> dict[int, float]:
        """BM25 of these items: item -> score, those without any term left out."""
        wanted = np.unique(np.asarray(items, np.uint32))
        scores = np.zeros(len(wanted), np.float64)
        for number in range(len(self.terms)):
            scores += self._scores_of(number, wanted)
        matched = scores > 0.0
        return dict(zip(wanted[matched].tolist(), scores[matched].tolist(), strict=True))

    def _rest(self, number: int) -> float:
        """The most that the terms from `number` on can add to an item."""
        return (K1 + 1.0) * self.sums[number]

    def _chosen(self) -> NDArray[np.uint32]:
        chosen = self.among if self.among is not None else np.empty(0, np.uint32)
        return np.setdiff1d(chosen, self.dead, assume_unique=True)

    def _merged(self, k: int) -> tuple[NDArray[np.uint32], Scores, int]:
        """(items, their scores by the first terms, how many terms): all others come too late to
        bring a new item into the top `k`."""
        numbering = _Numbering.of(self.terms)
        scores = np.zeros(numbering.size, np.float64)
        allowed = numbering.mask(self.dead, self.among)
        rows, found = np.empty(0, np.intp), list[Rows]()
        bound = 0.0
        # A pasted log has thousands of terms: looking for the k-th best after each is most of the
        # work then.
        often = max(1, len(self.terms) // _CHECKS)
        for done, (term, weight) in enumerate(zip(self.terms, self.weights, strict=True), 1):
            rest = self._rest(done)
            own = numbering.rows(term.items)
            before = scores[own]
            after = before + term_scores(weight, term.tfs, term.lengths, self.mean)
            scores[own] = after
            # What is left out here has a score from now on, so it never counts as new again.
            fresh = own[(before == 0.0) & (after + rest >= bound)]
            found.append(fresh if allowed is None else fresh[allowed[fresh]])
            if done % often and done < len(self.terms):
                continue
            rows, found = np.concatenate([rows, *found]), []
            bound = _kth(scores[rows], k)
            rows = rows[scores[rows] + rest >= bound]
            if bound > rest:
                break
        rows = np.sort(rows)
        return numbering.items(rows), scores[rows], done

    def _scores_of(self, number: int, items: NDArray[np.uint32]) -> Scores:
        """What one term adds to ascending items."""
        out = np.zeros(len(items), np.float64)
        term = self.terms[number]
        places, held = _places(term.items, items)
        at = places[held]
        out[held] = term_scores(self.weights[number], term.tfs[at], term.lengths[at], self.mean)
        return out


@dataclass(frozen=True)
class _Numbering:
    """Item numbers as rows of an array. `known`: the items, where too few of the range exist."""

    first: int
    size: int
    known: NDArray[np.uint32] | None

    @classmethod
    def of(cls, parts: Sequence[Postings]) -> _Numbering:
        """For lists none of which is empty."""
        first = min(int(p.items[0]) for p in parts)
        span = max(int(p.items[-1]) for p in parts) + 1 - first
        if span <= max(_DENSE_SPAN, 4 * sum(map(len, parts))):
            return cls(first, span, None)
        known = np.unique(np.concatenate([p.items for p in parts]))
        return cls(first, len(known), known)

    def rows(self, items: NDArray[np.uint32]) -> Rows:
        """Rows of items that are numbered."""
        if self.known is not None:
            return np.searchsorted(self.known, items)
        return items.astype(np.intp) - self.first

    def items(self, rows: Rows) -> NDArray[np.uint32]:
        """Inverse of `rows`."""
        if self.known is not None:
            return self.known[rows]
        return (rows + self.first).astype(np.uint32)

    def mask(
        self, dead: NDArray[np.uint32], among: NDArray[np.uint32] | None
    ) -> NDArray[np.bool_] | None:
        """Rows that may be returned, None when all may."""
        if among is None and not len(dead):
            return None
        mask = np.ones(self.size, np.bool_) if among is None else np.zeros(self.size, np.bool_)
        if among is not None:
            mask[self._inside(among)] = True
        mask[self._inside(dead)] = False
        return mask

    def _inside(self, items: NDArray[np.uint32]) -> Rows:
        if self.known is not None:
            places, held = _places(self.known, items)
            return places[held]
        rows = self.rows(items)
        return rows[(rows >= 0) & (rows < self.size)]


def _places(
    items: NDArray[np.uint32], wanted: NDArray[np.uint32]
) -> tuple[Rows, NDArray[np.bool_]]:
    """Where `wanted` stand in ascending `items` (n > 0), and whether they do."""
    places = np.minimum(np.searchsorted(items, wanted), len(items) - 1)
    return places, items[places] == wanted


def _kth(scores: Scores, k: int) -> float:
    """The k-th best score, 0 when there are fewer."""
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else 0.0


def _best(items: NDArray[np.uint32], scores: Scores, k: int) -> tuple[NDArray[np.uint32], Scores]:
    if len(items) > k:
        # Everything at least as good as the k-th stays until ties are broken by item.
        bound = np.partition(scores, -k)[-k]
        keep = scores >= bound
        items, scores = items[keep], scores[keep]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]
