"""Values of the scheduling core."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Priority(IntEnum):
    """Lower goes first."""

    QUERY = 0
    DOCUMENT = 1


class State(IntEnum):
    """Where an item is. DONE, EXPIRED and CANCELLED are final."""

    QUEUED = 0
    RUNNING = 1
    DONE = 2
    EXPIRED = 3
    CANCELLED = 4


@dataclass(slots=True, eq=False)
class Item(Generic[T]):
    """One text in the queue.

    `lane` names the model: only items of one lane share a batch. `arrival` and `deadline` are
    seconds on the scheduler's clock. `tokens` is at least 1. `seq` is set by the scheduler.
    """

    lane: str
    tokens: int
    priority: Priority
    arrival: float
    payload: T
    deadline: float | None = None
    state: State = State.QUEUED
    seq: int = 0

    def expired(self, now: float) -> bool:
        """True once the deadline is reached."""
        return self.deadline is not None and self.deadline <= now


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Items of one lane for one forward pass."""

    lane: str
    items: tuple[Item[T], ...]

    @property
    def tokens(self) -> int:
        """Tokens without padding."""
        return sum(item.tokens for item in self.items)

    @property
    def padded_tokens(self) -> int:
        """What the device computes: the longest item's tokens for every item."""
        return max(item.tokens for item in self.items) * len(self.items)


@dataclass(frozen=True, slots=True)
class Pop(Generic[T]):
    """What `next_batch` found: a batch or None, and the items that were dropped on the way."""

    batch: Batch[T] | None
    expired: tuple[Item[T], ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How batches are made.

    batch_tokens: padded tokens of a batch (a longer single item still runs, alone).
    batch_items: items of a batch. queue_tokens: tokens that may wait.
    age_limit_s: a document that waited longer may go before queries, once in `query_burst` batches.
    max_waste: share of padding accepted once a batch has `fill_tokens` padded tokens; below that,
    filling the device matters more.
    """

    batch_tokens: int = 8_192
    batch_items: int = 64
    queue_tokens: int = 1_000_000
    age_limit_s: float = 0.5
    query_burst: int = 4
    max_waste: float = 0.12
    fill_tokens: int = 256


@dataclass(slots=True)
class Counters:
    """Totals since the start, for metrics and tests."""

    batches: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    expired: int = 0
    cancelled: int = 0
    halved: int = 0
