"""The waiting items of one lane and priority, by age and by length."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Generic

from services.embedder.scheduler.types import Item, Limits, T


class LengthIndex(Generic[T]):
    """Finds the oldest item and the ones nearest to it in length.

    The order by length is a plain sorted list: inserting moves memory, which for the tens of
    thousands of items that a queue holds costs microseconds.
    """

    def __init__(self) -> None:
        self._by_age: deque[Item[T]] = deque()
        self._by_length: list[tuple[int, int]] = []
        self._items: dict[int, Item[T]] = {}
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item[T]) -> None:
        """Append the youngest item; its seq is larger than every other's."""
        self._by_age.append(item)
        insort(self._by_length, (item.tokens, item.seq))
        self._items[item.seq] = item
        self.tokens += item.tokens

    def holds(self, item: Item[T]) -> bool:
        """True if the item waits here."""
        return item.seq in self._items

    def clear(self) -> list[Item[T]]:
        """Take out everything, oldest first."""
        return self._forget(0, len(self._by_length))

    def remove(self, item: Item[T]) -> None:
        """Take out one waiting item."""
        at = bisect_left(self._by_length, (item.tokens, item.seq))
        self._forget(at, at + 1)

    def oldest(self) -> Item[T] | None:
        """The item that waits longest."""
        while self._by_age and self._by_age[0].seq not in self._items:
            self._by_age.popleft()
        return self._by_age[0] if self._by_age else None

    def take(self, seed: Item[T], budget: int, limits: Limits) -> list[Item[T]]:
        """Remove and return `seed` and neighbours in length, nearest first, within the limits."""
        keys = self._by_length
        low = bisect_left(keys, (seed.tokens, seed.seq))
        high = low + 1
        longest = total = seed.tokens
        left_open, right_open = True, True
        while left_open or right_open:
            left_open = left_open and low > 0
            right_open = right_open and high < len(keys)
            left_gap = seed.tokens - keys[low - 1][0] if left_open else None
            right_gap = keys[high][0] - seed.tokens if right_open else None
            if left_gap is not None and (right_gap is None or left_gap <= right_gap):
                tokens, leftwards = keys[low - 1][0], True
            elif right_gap is not None:
                tokens, leftwards = keys[high][0], False
            else:
                break
            if _fits(max(longest, tokens), total + tokens, high - low + 1, budget, limits):
                longest, total = max(longest, tokens), total + tokens
                low, high = (low - 1, high) if leftwards else (low, high + 1)
            elif leftwards:
                left_open = False
            else:
                right_open = False
        return self._forget(low, high)

    def _forget(self, low: int, high: int) -> list[Item[T]]:
        taken = [self._items.pop(seq) for _, seq in self._by_length[low:high]]
        del self._by_length[low:high]
        self.tokens -= sum(item.tokens for item in taken)
        # Items taken from the middle leave a mark in the age queue; without this, marks could pile
        # up behind an old head.
        if len(self._by_age) > 2 * len(self._items) + 64:
            self._by_age = deque(item for item in self._by_age if item.seq in self._items)
        return sorted(taken, key=lambda item: item.seq)


def _fits(longest: int, total: int, count: int, budget: int, limits: Limits) -> bool:
    cost = longest * count
    if cost > budget or count > limits.batch_items:
        return False
    return cost <= limits.fill_tokens or cost - total <= limits.max_waste * cost
