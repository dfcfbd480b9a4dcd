"""Packed postings: the storage form of large lexical scopes and their scoring in numpy.

A posting list is bytes: per entry an item (uint32 ordinal within the scope), its frequency (uint16)
and the item's length in tokens (uint16), as three little-endian columns. The length stands beside
the frequency so that one read per term is all a query needs. A store keeps, per (scope, term,
segment), such bytes; per (scope, term) the document frequency; per scope the item count and the
sum of lengths. Delta rows are further segments of the same term, dead items a set of ordinals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.search.bm25 import K1, idf, term_scores

_MAX_U16: Final = 65_535
_ENTRY_BYTES: Final = 8
_NOTHING: Final = (np.empty(0, np.uint32), np.empty(0, np.float64))


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
    count, rest = divmod(len(data), _ENTRY_BYTES)
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
    """All segments of one query term, with its document frequency in the scope."""

    document_frequency: int
    parts: Sequence[Postings]


def score_postings(
    terms: Sequence[TermPostings],
    documents: int,
    total_length: int,
    k: int,
    dead: NDArray[np.uint32] | None = None,
    among: NDArray[np.uint32] | None = None,
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    """Exact BM25 top `k`: (items (m,), scores (m,)), m <= k, best first, ties by item.

    Terms go from rare to common. Once the k-th best score exceeds what all remaining terms
    could add to an unseen item, those only complete the scores of seen ones (MaxScore, Turtle
    and Flood 1995): the selection never looks at the many items of a common term alone.
    """
    if documents <= 0 or k <= 0:
        return _NOTHING
    known = sorted(
        (t for t in terms if t.document_frequency > 0 and any(map(len, t.parts))),
        key=lambda t: t.document_frequency,
    )
    if not known:
        return _NOTHING
    mean = total_length / documents
    weights = [idf(documents, min(t.document_frequency, documents)) for t in known]
    top = max(int(p.items[-1]) for t in known for p in t.parts if len(p)) + 1
    allowed = _allowed(top, dead, among)
    scores = np.zeros(top, np.float64)
    seen = np.zeros(top, np.bool_)
    remaining = (K1 + 1.0) * sum(weights)
    closed = False
    for term, weight in zip(known, weights, strict=True):
        closed = closed or _kth(scores, seen, k) > remaining
        for part in term.parts:
            scores[part.items] += term_scores(weight, part.tfs, part.lengths, mean)
            if not closed:
                seen[part.items] = True if allowed is None else allowed[part.items]
        remaining -= (K1 + 1.0) * weight
    candidates = np.flatnonzero(seen).astype(np.uint32)
    return _best(candidates, scores[candidates], k)


def _allowed(
    top: int, dead: NDArray[np.uint32] | None, among: NDArray[np.uint32] | None
) -> NDArray[np.bool_] | None:
    """Mask of the items that may be returned, None when all may."""
    if among is None and (dead is None or not len(dead)):
        return None
    mask = np.ones(top, np.bool_) if among is None else np.zeros(top, np.bool_)
    if among is not None:
        mask[among[among < top]] = True
    if dead is not None:
        mask[dead[dead < top]] = False
    return mask


def _kth(scores: NDArray[np.float64], seen: NDArray[np.bool_], k: int) -> float:
    """The k-th best score so far, 0 when fewer items were seen."""
    found = scores[seen]
    return float(np.partition(found, -k)[-k]) if len(found) >= k else 0.0


def _best(
    items: NDArray[np.uint32], scores: NDArray[np.float64], k: int
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    if len(items) > k:
        # Everything at least as good as the k-th stays until ties are broken by item.
        bound = np.partition(scores, -k)[-k]
        keep = scores >= bound
        items, scores = items[keep], scores[keep]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]
