"""Keeping the list from saying one thing ten times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.search.types import FloatArray, Item


@dataclass(frozen=True)
class Collapsed:
    """order: survivors, best first; sources: survivor -> ids it stands for; dropped: how many."""

    order: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    dropped: int


_BLOCK: Final = 256
_POOL: Final = 3_000


class _Families:
    """Which earlier vector each one is nearly equal to; compared block by block, as one product of
    matrices costs a tenth of as many products of vectors."""

    def __init__(self, vectors: Sequence[tuple[str, FloatArray]], near: float, room: int) -> None:
        self._vectors = vectors
        self._place = {item_id: n for n, (item_id, _) in enumerate(vectors)}
        self._near = near
        self._room = room
        self._kept: list[int] = []
        self._block = -1
        self._like_kept = self._like_block = np.empty((0, 0), np.bool_)
        self._kept_before = 0

    def original(self, item_id: str) -> str | None:
        """The first kept vector that this one is nearly equal to. Ids come in order."""
        place = self._place.get(item_id)
        if place is None:
            return None
        block, row = divmod(place, _BLOCK)
        if block != self._block:
            self._compare(block)
        like = self._like_kept[row]
        if like.any():
            return self._vectors[self._kept[int(np.argmax(like))]][0]
        for kept in self._kept[self._kept_before :]:
            if self._like_block[row, kept - block * _BLOCK]:
                return self._vectors[kept][0]
        return None

    def keep(self, item_id: str) -> None:
        """From now on others are compared with this one, as long as there is room."""
        place = self._place.get(item_id)
        if place is not None and len(self._kept) < self._room:
            self._kept.append(place)

    def _compare(self, block: int) -> None:
        rows = np.stack([v for _, v in self._vectors[block * _BLOCK : (block + 1) * _BLOCK]])
        # What another block kept since the last comparison stands before this block.
        before = [self._vectors[n][1] for n in self._kept if n < block * _BLOCK]
        kept = np.stack(before) if before else np.empty((0, rows.shape[1]), np.float32)
        self._block, self._kept_before = block, len(before)
        self._like_kept = rows @ kept.T >= self._near
        self._like_block = rows @ rows.T >= self._near


def collapse(order: Sequence[str], items: Mapping[str, Item], near: float, keep: int) -> Collapsed:
    """Drops equal contents (same hash) and, with `near` > 0, nearly equal vectors.

    The best-ranked of a family survives and names the others. Vectors are compared with at most
    `keep` survivors: what comes later will not be shown.
    """
    survivors: list[str] = []
    by_hash: dict[str, str] = {}
    sources: dict[str, list[str]] = {}
    spaces = _by_space(order, items) if near > 0.0 else {}
    families = {space: _Families(vectors, near, keep) for space, vectors in spaces.items()}
    for item_id in order:
        item = items.get(item_id)
        original = by_hash.get(item.content_hash) if item and item.content_hash else None
        own = families.get(_space(item)) if item is not None else None
        if original is None and own is not None and len(survivors) < keep:
            original = own.original(item_id)
        if original is not None:
            sources.setdefault(original, []).append(item_id)
            continue
        survivors.append(item_id)
        if item is not None and item.content_hash:
            by_hash[item.content_hash] = item_id
        if own is not None:
            own.keep(item_id)
    return Collapsed(
        tuple(survivors),
        {i: tuple(s) for i, s in sources.items()},
        len(order) - len(survivors),
    )


def _space(item: Item) -> tuple[str, int] | None:
    """What an item's vector can be compared within: its model, and its dimensions."""
    return None if item.vector is None else (item.space, len(item.vector))


def _by_space(
    order: Sequence[str], items: Mapping[str, Item]
) -> dict[tuple[str, int] | None, list[tuple[str, FloatArray]]]:
    """Vectors in order, apart for each space."""
    out: dict[tuple[str, int] | None, list[tuple[str, FloatArray]]] = {}
    for i in order:
        item = items.get(i)
        if item is not None and item.vector is not None:
            out.setdefault(_space(item), []).append((i, item.vector))
    return out


def cap_per_document(order: Sequence[str], items: Mapping[str, Item], most: int) -> tuple[str, ...]:
    """At most `most` hits of one document (0 = no cap); items of unknown documents stay."""
    if most <= 0:
        return tuple(order)
    counts: dict[str, int] = {}
    out: list[str] = []
    for item_id in order:
        item = items.get(item_id)
        document = item.document_id if item is not None else ""
        if document:
            counts[document] = counts.get(document, 0) + 1
            if counts[document] > most:
                continue
        out.append(item_id)
    return tuple(out)


def mmr(
    order: Sequence[str],
    scores: Mapping[str, float],
    items: Mapping[str, Item],
    balance: float,
    k: int,
) -> tuple[str, ...]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998) for the first `k`; rest as it was.

    `balance` 1 = relevance alone. Items without a vector count as unlike everything, those of two
    models as unlike each other. It chooses among the best 3,000.
    """
    if balance >= 1.0 or len(order) < 2:
        return tuple(order)
    pool, rest = order[:_POOL], order[_POOL:]
    values = np.array([scores[i] for i in pool], np.float64)
    span = float(values.max() - values.min()) or 1.0
    worth = balance * (values - values.min()) / span
    likeness = _likeness(pool, items)
    closest = np.zeros(len(pool), np.float64)
    left = np.ones(len(pool), np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(pool)):
        best = int(np.argmax(np.where(left, worth - (1.0 - balance) * closest, -np.inf)))
        left[best] = False
        chosen.append(best)
        closest = np.maximum(closest, likeness[best])
    unchosen = (pool[n] for n in np.flatnonzero(left).tolist())
    return (*(pool[n] for n in chosen), *unchosen, *rest)


def _likeness(pool: Sequence[str], items: Mapping[str, Item]) -> FloatArray:
    """Inner products (n, n), 0 where a side has no vector or another model's."""
    out = np.zeros((len(pool), len(pool)), np.float32)
    place = {i: n for n, i in enumerate(pool)}
    for vectors in _by_space(pool, items).values():
        at = np.array([place[i] for i, _ in vectors])
        rows = np.stack([v for _, v in vectors])
        if len(vectors) == len(pool):
            return rows @ rows.T
        out[np.ix_(at, at)] = rows @ rows.T
    return out
