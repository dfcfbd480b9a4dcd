"""The asyncio side of the embedder: cache, in-flight sharing, tokenising, admission, waiting.

Everything here runs in the event loop, except tokenising of longer texts, which runs in a small
pool. A call waits on one future, however many texts it has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from services.common import errors
from services.embedder.cache import Key, VectorCache, key
from services.embedder.engine import Work
from services.embedder.model import (
    EmbeddingModel,
    InputType,
    Kind,
    Output,
    PairModel,
    Prepared,
    Vectors,
)
from services.embedder.scheduler.types import Item, Priority
from services.embedder.worker import DeviceWorker, Failure, Finished

# Below this many characters tokenising costs less than a change of threads.
_INLINE_CHARS = 4_096
_CHARS_PER_TOKEN = 8
R = TypeVar("R")
PRIORITY = {InputType.QUERY: Priority.QUERY, InputType.DOCUMENT: Priority.DOCUMENT}


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one text or pair, or why it has none."""

    outcome: Output | Failure
    tokens: int = 0
    truncated: bool = False
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One embedding call.

    `deadline` is in seconds on the front's clock, None for no limit. `priority` unset means the one
    of the input type. `partial`: when the deadline passes, return what there is instead of raising.
    `room`: tokens that the texts may have together, None for no limit.
    """

    texts: Sequence[str]
    input_type: InputType
    kinds: frozenset[Kind]
    max_tokens: int
    truncate: bool = True
    deadline: float | None = None
    priority: Priority | None = None
    partial: bool = False
    room: int | None = None

    @property
    def urgency(self) -> Priority:
        """The priority of its items."""
        return PRIORITY[self.input_type] if self.priority is None else self.priority


class Ticket:
    """What a call waits for: one slot a text, one future for all."""

    def __init__(self, size: int) -> None:
        self.slots: list[Done | None] = [None] * size
        self.items: set[Item[Work]] = set()
        self.forward_s = 0.0
        self._left = size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not size:
            self.future.set_result(None)

    def fill(self, at: int, done: Done) -> None:
        """Set slot `at`, once."""
        if self.slots[at] is not None:
            return
        self.slots[at] = done
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(None)

    def results(self) -> list[Done]:
        """All slots; the future must be done."""
        return [slot for slot in self.slots if slot is not None]


@dataclass(slots=True, eq=False)
class _Flight:
    """One item on its way and every slot that waits for it."""

    item: Item[Work]
    key: Key | None
    waiters: list[tuple[Ticket, int]]


class Front:
    """Shares one worker a device among all calls."""

    def __init__(
        self,
        cache: VectorCache,
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._executor = executor
        self._clock = clock
        self._flights: dict[Item[Work], _Flight] = {}
        self._by_key: dict[Key, _Flight] = {}

    def deliver(self, finished: Sequence[Finished]) -> None:
        """Results of a batch; given to the workers as their `deliver`."""
        for one in finished:
            flight = self._flights.pop(one.item, None)
            if flight is None:
                continue
            prepared = one.item.payload.prepared
            if flight.key is not None:
                self._by_key.pop(flight.key, None)
                if isinstance(one.outcome, Vectors):
                    self._cache.put(flight.key, one.outcome, prepared.tokens, prepared.truncated)
            done = Done(one.outcome, prepared.tokens, prepared.truncated)
            for ticket, at in flight.waiters:
                ticket.items.discard(one.item)
                ticket.forward_s = max(ticket.forward_s, one.forward_s)
                ticket.fill(at, done)

    async def embed(self, model: EmbeddingModel, worker: DeviceWorker, asked: Asked) -> Ticket:
        """Vectors of every text. The ticket's slots are filled when this returns.

        Raises OVERLOADED or DEADLINE_EXCEEDED for the call as such, and INVALID_ARGUMENT, before
        any work, for more tokens than there is room for.
        """
        ticket = Ticket(len(asked.texts))
        keys: dict[int, Key] = {}
        for at, text in enumerate(asked.texts):
            wanted = self._key(model, asked, text)
            if not self._serve(ticket, at, wanted, asked):
                keys[at] = wanted
        try:
            if keys:
                prepared = await self._prepare(model, asked, list(keys))
                check_room(asked.room, sum(one.tokens for one in prepared))
                self._launch(model, worker, asked, ticket, keys, prepared)
            await self._wait(ticket, asked.deadline, asked.partial)
        finally:
            self._leave(ticket, worker)
        # What came from the cache or from another call counts as well, and has cost nothing.
        check_room(asked.room, sum(slot.tokens for slot in ticket.slots if slot is not None))
        return ticket

    async def aside(self, work: Callable[[], R]) -> R:
        """The result of blocking work, which is done in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def pairs(
        self,
        model: PairModel,
        worker: DeviceWorker,
        query: str,
        documents: Sequence[str],
        deadline: float | None,
    ) -> Ticket:
        """Raw scores of pairs; when `deadline` passes, the slots that are filled by then.

        Raises OVERLOADED.
        """
        ticket = Ticket(len(documents))
        if not documents:
            return ticket
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._executor, model.prepare_pairs, query, documents)
        lane = f"rerank:{model.info.id}"
        flights = [
            self._flight(lane, one, frozenset(), Priority.QUERY, deadline, None, ticket, at)
            for at, one in enumerate(prepared)
        ]
        try:
            self._submit(worker, flights)
            await self._wait(ticket, deadline, partial=True)
        finally:
            self._leave(ticket, worker)
        return ticket

    def _key(self, model: EmbeddingModel, asked: Asked, text: str) -> Key:
        info = model.info
        return key(info.id, info.revision, asked.input_type, asked.max_tokens, asked.kinds, text)

    def _serve(self, ticket: Ticket, at: int, wanted: Key, asked: Asked) -> bool:
        """Serve a text from the cache or from what is already on its way."""
        entry = self._cache.get(wanted)
        if entry is not None:
            vectors, tokens, truncated = entry
            if truncated and not asked.truncate:
                ticket.fill(at, Done(_too_long(asked), tokens))
            else:
                ticket.fill(at, Done(vectors, tokens, truncated, cached=True))
            return True
        flight = self._by_key.get(wanted)
        if flight is None:
            return False
        if flight.item.payload.prepared.truncated and not asked.truncate:
            ticket.fill(at, Done(_too_long(asked), flight.item.tokens))
            return True
        flight.waiters.append((ticket, at))
        ticket.items.add(flight.item)
        if flight.item.deadline is not None:
            # The item lives as long as its most patient waiter.
            flight.item.deadline = (
                None if asked.deadline is None else max(flight.item.deadline, asked.deadline)
            )
        return True

    async def _prepare(
        self, model: EmbeddingModel, asked: Asked, places: Sequence[int]
    ) -> list[Prepared]:
        # Characters are capped first: tokenising megabytes only to cut them would be wasted.
        cap = min(model.info.max_chars, asked.max_tokens * _CHARS_PER_TOKEN)
        texts = [asked.texts[at][:cap] for at in places]
        if sum(map(len, texts)) <= _INLINE_CHARS:
            prepared = model.prepare(texts, asked.input_type, asked.max_tokens)
        else:
            loop = asyncio.get_running_loop()
            prepared = await loop.run_in_executor(
                self._executor, model.prepare, texts, asked.input_type, asked.max_tokens
            )
        return [
            one
            if one.truncated or len(asked.texts[at]) <= cap
            else Prepared(one.text, one.ids, one.tokens, truncated=True)
            for one, at in zip(prepared, places, strict=True)
        ]

    def _launch(
        self,
        model: EmbeddingModel,
        worker: DeviceWorker,
        asked: Asked,
        ticket: Ticket,
        keys: dict[int, Key],
        prepared: Sequence[Prepared],
    ) -> None:
        lane = f"embed:{model.info.id}"
        flights: list[_Flight] = []
        new: dict[Key, _Flight] = {}
        for (at, wanted), one in zip(keys.items(), prepared, strict=True):
            if one.truncated and not asked.truncate:
                ticket.fill(at, Done(_too_long(asked), one.tokens))
            elif wanted in new:
                new[wanted].waiters.append((ticket, at))
            # The same text may have set out, or arrived, while this one was tokenised.
            elif not self._serve(ticket, at, wanted, asked):
                new[wanted] = self._flight(
                    lane, one, asked.kinds, asked.urgency, asked.deadline, wanted, ticket, at
                )
                flights.append(new[wanted])
        self._submit(worker, flights)

    def _flight(
        self,
        lane: str,
        prepared: Prepared,
        kinds: frozenset[Kind],
        priority: Priority,
        deadline: float | None,
        wanted: Key | None,
        ticket: Ticket,
        at: int,
    ) -> _Flight:
        item = Item(
            lane=lane,
            tokens=max(prepared.tokens, 1),
            priority=priority,
            arrival=self._clock(),
            payload=Work(prepared, kinds),
            deadline=deadline,
        )
        return _Flight(item, wanted, [(ticket, at)])

    def _submit(self, worker: DeviceWorker, flights: Sequence[_Flight]) -> None:
        if not flights:
            return
        tokens = sum(flight.item.tokens for flight in flights)
        retry_after = worker.admit(flights[0].item, tokens)
        if retry_after is not None:
            raise errors.overloaded(retry_after)
        for flight in flights:
            self._flights[flight.item] = flight
            if flight.key is not None:
                self._by_key[flight.key] = flight
            for ticket, _ in flight.waiters:
                ticket.items.add(flight.item)
        worker.submit([flight.item for flight in flights])

    async def _wait(self, ticket: Ticket, deadline: float | None, partial: bool) -> None:
        timeout = None if deadline is None else max(deadline - self._clock(), 0.0)
        try:
            await asyncio.wait_for(ticket.future, timeout)
        except TimeoutError:
            if not partial:
                raise errors.deadline_exceeded("embed") from None

    def _leave(self, ticket: Ticket, worker: DeviceWorker) -> None:
        """The call is over: what only it waited for is dropped."""
        for item in ticket.items:
            flight = self._flights.get(item)
            if flight is None:
                continue
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] is not ticket]
            # One that is running already is left to end: its result goes into the cache.
            if not flight.waiters and worker.cancel(item):
                self._flights.pop(item, None)
                if flight.key is not None:
                    self._by_key.pop(flight.key, None)
        ticket.items = set()


def check_room(room: int | None, tokens: int) -> None:
    """Raises INVALID_ARGUMENT when the texts of a call have more tokens than there is room for."""
    if room is not None and tokens > room:
        raise errors.invalid_argument(
            "texts", f"must have at most {room} tokens together in these kinds; they have {tokens}"
        )


def _too_long(asked: Asked) -> Failure:
    return Failure("TEXT_TOO_LONG", f"The text has more than {asked.max_tokens} tokens.")
