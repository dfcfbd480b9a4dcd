"""Keeping the list from saying one thing ten times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.search.types import Item


@dataclass(frozen=True)
class Collapsed:
    """order: survivors, best first; sources: survivor -> ids it stands for; dropped: how many."""

    order: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    dropped: int


def collapse(order: Sequence[str], items: Mapping[str, Item], near: float, keep: int) -> Collapsed:
    """Drops equal contents (same hash) and, with `near` > 0, nearly equal vectors.

    The best-ranked of a family survives and names the others. Vectors are compared with at most
    `keep` survivors: what comes later will not be shown.
    """
    survivors: list[str] = []
    by_hash: dict[str, str] = {}
    sources: dict[str, list[str]] = {}
    kept_vectors: list[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = []
    for item_id in order:
        item = items.get(item_id)
        original = by_hash.get(item.content_hash) if item and item.content_hash else None
        vector = item.vector if item is not None else None
        if original is None and near > 0.0 and vector is not None and len(survivors) < keep:
            original = next(
                (i for i, other in kept_vectors if float(np.dot(other, vector)) >= near), None
            )
        if original is not None:
            sources.setdefault(original, []).append(item_id)
            continue
        survivors.append(item_id)
        if item is not None and item.content_hash:
            by_hash[item.content_hash] = item_id
        if vector is not None and len(kept_vectors) < keep:
            kept_vectors.append((item_id, vector))
    return Collapsed(
        tuple(survivors),
        {i: tuple(s) for i, s in sources.items()},
        len(order) - len(survivors),
    )


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

    `balance` 1 = relevance alone. Items without a vector count as unlike everything.
    """
    if balance >= 1.0 or len(order) < 2:
        return tuple(order)
    low = min(scores[i] for i in order)
    span = max(scores[i] for i in order) - low or 1.0
    rest, chosen = list(order), list[str]()
    closest = dict.fromkeys(order, 0.0)
    while rest and len(chosen) < k:
        best = max(
            rest, key=lambda i: balance * (scores[i] - low) / span - (1.0 - balance) * closest[i]
        )
        rest.remove(best)
        chosen.append(best)
        picked = items.get(best)
        if picked is None or picked.vector is None:
            continue
        for other_id in rest:
            other = items.get(other_id)
            if other is not None and other.vector is not None:
                likeness = float(np.dot(other.vector, picked.vector))
                closest[other_id] = max(closest[other_id], likeness)
    return (*chosen, *rest)
