"""The one model thread of a device, and its supervisor.

The thread takes batches from the scheduler, runs them and hands the results to the event loop in
one piece. A forward pass that raises is bisected; a thread that dies is replaced, and what it was
running is treated as a failed batch, so that a text that kills the thread ends up alone and fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from services.embedder.engine import Engine, Work
from services.embedder.model import (
    MODEL_FAULTS,
    ModelRefused,
    ModelUnavailable,
    OutOfMemory,
    Output,
)
from services.embedder.scheduler.core import Scheduler
from services.embedder.scheduler.types import Batch, Item, Limits

log = logging.getLogger(__name__)

_PROBE_AFTER_S = 1.0
_RESTART_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no result: a reason of `ErrorReason` without its prefix."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """One item and what became of it."""

    item: Item[Work]
    outcome: Output | Failure
    forward_s: float = 0.0


class Observer:
    """Hears about batches; the metrics override it. Called in the model thread."""

    def batch(self, batch: Batch[Work], now: float, seconds: float) -> None:
        """A batch went well."""

    def failure(self, lane: str, kind: str) -> None:
        """A batch failed."""


Deliver = Callable[[Sequence[Finished]], None]


class DeviceWorker:
    """Runs the engines of one device.

    `deliver` is called in the event loop. `clock` gives seconds and must be monotonic.
    """

    def __init__(
        self,
        name: str,
        engines: Mapping[str, Engine],
        limits: Limits,
        deliver: Deliver,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        sick: Collection[str] = (),
    ) -> None:
        self.name = name
        self._engines = dict(engines)
        self._scheduler: Scheduler[Work] = Scheduler(limits)
        self._wake = threading.Condition()
        self._deliver = deliver
        self._observer = observer or Observer()
        self._clock = clock
        self._stopping = False
        self._running: Batch[Work] | None = None
        self._began = 0.0
        self._deaths = 0
        # Those that start sick are looked at as soon as there is nothing else to do.
        self._sick: set[str] = set(sick)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- called in the event loop ------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Must be called in a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._spawn()

    async def stop(self) -> None:
        """Cancel what waits and end the thread after its current batch."""
        with self._wake:
            self._stopping = True
            left = self._scheduler.drain()
            self._wake.notify_all()
        self._deliver([Finished(item, Failure("MODEL_UNAVAILABLE", "stopping")) for item in left])
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def submit(self, items: Sequence[Item[Work]]) -> None:
        """Queue items; their results arrive through `deliver`."""
        with self._wake:
            self._scheduler.add(items)
            self._wake.notify()

    def admit(self, item: Item[Work], tokens: int) -> float | None:
        """None, or seconds to wait before `tokens` more like `item` may be added."""
        with self._wake:
            return self._scheduler.admit(
                item.lane, tokens, item.priority, item.deadline, self._clock()
            )

    def cancel(self, item: Item[Work]) -> bool:
        """Nobody waits for the item any more; False if it is running or over already."""
        with self._wake:
            return self._scheduler.cancel(item)

    def queued(self) -> tuple[int, int]:
        """Tokens and items that wait."""
        with self._wake:
            return self._scheduler.queued_tokens(), self._scheduler.queued_items()

    def counters(self) -> dict[str, int]:
        """Totals since the start."""
        with self._wake:
            c = self._scheduler.counters
            return {name: getattr(c, name) for name in c.__slots__}

    def unready(self, stall_s: float, lane: str = "") -> str | None:
        """Why the device cannot be trusted now, or None: sick engines, no thread, a stuck pass.
        With `lane`, only that engine counts.
        """
        if self._thread is None or not self._thread.is_alive():
            return f"the model thread of {self.name} is not running"
        if self._running is not None and self._clock() - self._began > stall_s:
            return f"a forward pass on {self.name} is stuck"
        sick = [name for name in sorted(self._sick) if lane in ("", name)]
        return f"the last forward pass failed: {', '.join(sick)}" if sick else None

    def engine_ready(self, lane: str) -> bool:
        """True if the engine's last forward pass was good."""
        return lane not in self._sick

    # -- called in the model thread ----------------------------------------------------------------

    def _spawn(self) -> None:
        self._thread = threading.Thread(target=self._main, name=f"model-{self.name}", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._work()
        finally:
            # Reached by dying, too: nothing is caught here, the death is only announced.
            if not self._stopping:
                self._post(self._on_death)

    def _work(self) -> None:
        while True:
            probe_due = False
            with self._wake:
                pop = self._scheduler.next_batch(self._clock())
                if pop.batch is None and not pop.expired:
                    if self._stopping:
                        return
                    woken = self._wake.wait(_PROBE_AFTER_S if self._sick else None)
                    probe_due = not woken
            if pop.expired:
                self._send([Finished(i, Failure("DEADLINE_EXCEEDED")) for i in pop.expired])
            if pop.batch is not None:
                self._run(pop.batch)
            elif probe_due:
                self._probe(*self._sick)

    def _run(self, batch: Batch[Work]) -> None:
        engine = self._engines[batch.lane]
        self._began = began = self._clock()
        self._running = batch
        try:
            found = engine.run([item.payload for item in batch.items])
        except OutOfMemory:
            self._fail(batch, "out_of_memory", Failure("MODEL_FAILED", "out of memory"))
            return
        except ModelUnavailable as error:
            log.warning("model unavailable: %s", error)
            self._abandon(batch)
            return
        except ModelRefused as error:
            self._fail(batch, "refused", Failure("PROVIDER_REFUSED", str(error.status)))
            return
        except MODEL_FAULTS as error:
            log.warning("forward pass failed: %s", type(error).__name__)
            self._fail(batch, "raised", Failure("MODEL_FAILED"))
            return
        seconds = self._clock() - began
        self._running = None
        bad = [i for i, out in zip(batch.items, found, strict=True) if out is None]
        with self._wake:
            final = self._scheduler.partly(batch, bad, seconds)
        self._observer.batch(batch, began, seconds)
        good = [
            Finished(item, out, seconds)
            for item, out in zip(batch.items, found, strict=True)
            if out is not None
        ]
        self._send([*good, *(Finished(item, Failure("MODEL_FAILED")) for item in final)])
        if good:
            self._sick.discard(batch.lane)
        if final:
            self._observer.failure(batch.lane, "bad_result")
            self._probe(batch.lane)

    def _fail(self, batch: Batch[Work], kind: str, failure: Failure) -> None:
        self._running = None
        with self._wake:
            final = self._scheduler.failed(batch, out_of_memory=kind == "out_of_memory")
        self._observer.failure(batch.lane, kind)
        self._send([Finished(item, failure) for item in final])
        if final:
            # One text failed alone: its own fault, or the model's? A known text tells.
            self._probe(batch.lane)

    def _abandon(self, batch: Batch[Work]) -> None:
        """The model cannot be reached: trying the halves would only ask it again."""
        self._running = None
        with self._wake:
            self._scheduler.abandon(batch)
        self._observer.failure(batch.lane, "unavailable")
        self._sick.add(batch.lane)
        self._send([Finished(item, Failure("MODEL_UNAVAILABLE")) for item in batch.items])

    def _probe(self, *lanes: str) -> None:
        for lane in lanes:
            try:
                well = self._engines[lane].probe()
            except MODEL_FAULTS as error:
                log.warning("probe failed: %s", type(error).__name__)
                well = False
            if well:
                self._sick.discard(lane)
            else:
                self._sick.add(lane)

    def _send(self, finished: Sequence[Finished]) -> None:
        if finished:
            self._post(self._deliver, finished)

    def _post(self, call: Callable[..., None], *args: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    # -- supervisor, in the event loop
    # ---------------------------------------------------------------

    def _on_death(self) -> None:
        """Replace a dead thread; what it was running counts as a failed batch."""
        self._deaths += 1
        log.error("the model thread of %s died and is restarted", self.name)
        batch, self._running = self._running, None
        if batch is not None:
            with self._wake:
                final = self._scheduler.failed(batch)
            self._observer.failure(batch.lane, "thread_died")
            self._deliver([Finished(item, Failure("MODEL_FAILED")) for item in final])
        delay = min(0.01 * 2 ** min(self._deaths, 10), _RESTART_MAX_S)
        if self._loop is not None:
            self._loop.call_later(delay, self._respawn)

    def _respawn(self) -> None:
        if not self._stopping:
            self._spawn()
