"""The scheduler of one device.

Work-conserving: whenever the device is free and anything waits, there is a batch. The oldest item
of the more urgent priority is taken and joined by the waiting items nearest to it in length, up to
a budget of padded tokens. A failed batch is cut in half until one text is left, so that a poison
text fails alone. Not thread-safe: the worker holds a lock around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from services.embedder.scheduler.budget import LaneBudget, Speed
from services.embedder.scheduler.lengths import LengthIndex
from services.embedder.scheduler.types import (
    Batch,
    Counters,
    Item,
    Limits,
    Pop,
    Priority,
    State,
    T,
)


class Scheduler(Generic[T]):
    """Queue of one device; every method takes the time from its caller."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[Priority, dict[str, LengthIndex[T]]] = {p: {} for p in Priority}
        self._again: dict[Priority, list[Batch[T]]] = {p: [] for p in Priority}
        self._budgets: dict[str, LaneBudget] = {}
        self._speeds: dict[str, Speed] = {}
        self._running: Batch[T] | None = None
        self._streak = 0
        self._next_seq = 0
        self.counters = Counters()

    def queued_tokens(self, priority: Priority | None = None) -> int:
        """Tokens that wait, of one priority or of all."""
        wanted = Priority if priority is None else (priority,)
        return sum(
            sum(index.tokens for index in self._waiting[p].values())
            + sum(batch.tokens for batch in self._again[p])
            for p in wanted
        )

    def queued_items(self) -> int:
        """Items that wait."""
        return sum(
            sum(len(index) for index in self._waiting[p].values())
            + sum(len(batch.items) for batch in self._again[p])
            for p in Priority
        )

    def predicted_wait(self, lane: str, tokens: int, priority: Priority) -> float:
        """Seconds until `tokens` more of this lane and priority would be done, as far as is
        known.
        """
        seconds = self._speed(lane).seconds(tokens)
        if self._running is not None:
            seconds += self._speed(self._running.lane).seconds(self._running.tokens)
        for ahead in Priority:
            if ahead > priority:
                break
            for other, index in self._waiting[ahead].items():
                seconds += self._speed(other).seconds(index.tokens)
            for batch in self._again[ahead]:
                seconds += self._speed(batch.lane).seconds(batch.tokens)
        return seconds

    def admit(
        self, lane: str, tokens: int, priority: Priority, deadline: float | None, now: float
    ) -> float | None:
        """None if `tokens` may be added now; else seconds after which to try again.

        An empty queue takes a call of any size: refusing it would refuse it for ever.
        """
        queued = self.queued_tokens()
        wait = self.predicted_wait(lane, tokens, priority)
        if queued and queued + tokens > self._limits.queue_tokens:
            return max(wait, 0.1)
        if deadline is not None and queued and now + wait > deadline:
            return max(wait - (deadline - now), 0.1)
        return None

    def add(self, items: Iterable[Item[T]]) -> None:
        """Queue items, in this order."""
        for item in items:
            self._next_seq += 1
            item.seq = self._next_seq
            item.state = State.QUEUED
            self._waiting[item.priority].setdefault(item.lane, LengthIndex()).add(item)

    def cancel(self, item: Item[T]) -> bool:
        """Drop an item that nobody waits for; False if it is running or over already."""
        if item.state is not State.QUEUED:
            return False
        item.state = State.CANCELLED
        self.counters.cancelled += 1
        index = self._waiting[item.priority].get(item.lane)
        if index is not None and index.holds(item):
            index.remove(item)
        return True

    def next_batch(self, now: float) -> Pop[T]:
        """The batch to run next; it counts as running until `done`, `failed` or `lost`."""
        expired: list[Item[T]] = []
        while (priority := self._choose(now)) is not None:
            candidates = self._take(priority)
            live: list[Item[T]] = []
            for item in candidates.items:
                if item.state is not State.QUEUED:
                    continue
                if item.expired(now):
                    item.state = State.EXPIRED
                    expired.append(item)
                else:
                    item.state = State.RUNNING
                    live.append(item)
            if live:
                self._streak = self._streak + 1 if priority is Priority.QUERY else 0
                self._running = Batch(candidates.lane, tuple(live))
                self._count(self._running, len(expired))
                return Pop(self._running, tuple(expired))
        self.counters.expired += len(expired)
        return Pop(None, tuple(expired))

    def done(self, batch: Batch[T], seconds: float) -> None:
        """The batch went well and took `seconds`."""
        self._running = None
        self._budget(batch.lane).good()
        self._speed(batch.lane).record(batch.tokens, seconds)
        for item in batch.items:
            item.state = State.DONE

    def failed(self, batch: Batch[T], *, out_of_memory: bool = False) -> tuple[Item[T], ...]:
        """The batch failed: halves of it wait again, before everything else of their priority.

        Returns the item that failed for good, if the batch had only one.
        """
        self._running = None
        if out_of_memory:
            self._budget(batch.lane).halve(batch.padded_tokens)
            self.counters.halved += 1
        if len(batch.items) == 1:
            batch.items[0].state = State.DONE
            return batch.items
        middle = (len(batch.items) + 1) // 2
        # A stack: the first half goes on top, so that the order of arrival is kept.
        self._requeue(Batch(batch.lane, batch.items[middle:]))
        self._requeue(Batch(batch.lane, batch.items[:middle]))
        return ()

    def partly(
        self, batch: Batch[T], bad: Iterable[Item[T]], seconds: float
    ) -> tuple[Item[T], ...]:
        """The batch ran, but the results of `bad` are unusable: those run again, each alone.

        Returns the item that is bad for good, if it ran alone.
        """
        again = list(bad)
        self.done(batch, seconds)
        if len(batch.items) == 1:
            return tuple(again)
        for item in reversed(again):
            self._requeue(Batch(batch.lane, (item,)))
        return ()

    def abandon(self, batch: Batch[T]) -> None:
        """The batch failed for a reason that no part of it would escape: all of it is over."""
        self._running = None
        for item in batch.items:
            item.state = State.DONE

    def drain(self) -> tuple[Item[T], ...]:
        """Take out everything that waits, oldest first (for shutting down)."""
        items = [
            item
            for priority in Priority
            for index in self._waiting[priority].values()
            for item in index.clear()
        ]
        for priority in Priority:
            items += [i for b in self._again[priority] for i in b.items if i.state is State.QUEUED]
            self._again[priority].clear()
        for item in items:
            item.state = State.CANCELLED
        return tuple(sorted(items, key=lambda item: item.seq))

    def _requeue(self, batch: Batch[T]) -> None:
        for item in batch.items:
            item.state = State.QUEUED
        self._again[batch.items[0].priority].append(batch)

    def _choose(self, now: float) -> Priority | None:
        if not self._has(Priority.DOCUMENT):
            return Priority.QUERY if self._has(Priority.QUERY) else None
        if not self._has(Priority.QUERY) or self._document_is_due(now):
            return Priority.DOCUMENT
        return Priority.QUERY

    def _document_is_due(self, now: float) -> bool:
        """Queries go first, but after a burst of them one batch of old documents has its turn."""
        if self._streak < self._limits.query_burst:
            return False
        oldest = self._oldest(Priority.DOCUMENT)
        if self._again[Priority.DOCUMENT]:
            return True
        return oldest is not None and now - oldest.arrival >= self._limits.age_limit_s

    def _has(self, priority: Priority) -> bool:
        return bool(self._again[priority]) or any(
            len(index) for index in self._waiting[priority].values()
        )

    def _oldest(self, priority: Priority) -> Item[T] | None:
        heads = [index.oldest() for index in self._waiting[priority].values()]
        return min((head for head in heads if head), key=lambda item: item.seq, default=None)

    def _take(self, priority: Priority) -> Batch[T]:
        """Remove candidates of `priority`, which has some."""
        if self._again[priority]:
            return self._again[priority].pop()
        seed = self._oldest(priority)
        assert seed is not None
        index = self._waiting[priority][seed.lane]
        budget = self._budget(seed.lane).tokens
        return Batch(seed.lane, tuple(index.take(seed, budget, self._limits)))

    def _count(self, batch: Batch[T], expired: int) -> None:
        counters = self.counters
        counters.batches += 1
        counters.items += len(batch.items)
        counters.tokens += batch.tokens
        counters.padded_tokens += batch.padded_tokens
        counters.expired += expired

    def _budget(self, lane: str) -> LaneBudget:
        return self._budgets.setdefault(lane, LaneBudget(self._limits.batch_tokens))

    def _speed(self, lane: str) -> Speed:
        return self._speeds.setdefault(lane, Speed())
