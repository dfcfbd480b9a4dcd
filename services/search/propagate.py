"""Neighbour and session propagation: in a conversation the answer stands beside the match."""

from __future__ import annotations

from collections.abc import Mapping

from services.search.recipes import Propagation
from services.search.types import Item


def apply(
    scores: Mapping[str, float], items: Mapping[str, Item], shares: Propagation
) -> tuple[dict[str, float], dict[str, float]]:
    """(gains, totals): what each item borrows from its neighbours and group, and its new score.

    total = (score + gain) / (1 + all shares), so that scores keep their range; `gains` is the
    borrowed part of the total. Items without a group borrow nothing and keep their score scaled
    alike.
    """
    every = shares.total
    if every <= 1.0:
        return dict.fromkeys(scores, 0.0), dict(scores)
    at: dict[tuple[str, int], float] = {}
    groups: dict[str, list[float]] = {}
    for item_id, score in scores.items():
        item = items.get(item_id)
        if item is not None and item.group:
            key = (item.group, item.position)
            at[key] = max(score, at.get(key, 0.0))
            groups.setdefault(item.group, []).append(score)
    best = {
        group: sum(sorted(values, reverse=True)[: shares.group_top]) / shares.group_top
        for group, values in groups.items()
    }
    gains: dict[str, float] = {}
    for item_id in scores:
        item = items.get(item_id)
        if item is None or not item.group:
            gains[item_id] = 0.0
            continue
        before = at.get((item.group, item.position - 1), 0.0)
        after = at.get((item.group, item.position + 1), 0.0)
        borrowed = shares.previous * before + shares.next * after
        gains[item_id] = (borrowed + shares.group * best[item.group]) / every
    return gains, {i: score / every + gains[i] for i, score in scores.items()}
