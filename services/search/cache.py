"""Bounded, locked cache of RAM indexes: one build per (scope, version), however many ask."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from services.search.bm25 import RamIndex


@dataclass
class _Entry:
    version: Hashable
    used_at: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    index: RamIndex | None = None


class RamIndexCache:
    """LRU of `RamIndex` keyed by scope, holding only the last version of each scope asked for.

    Bounded by scopes and by tokens (about 100 bytes each), and by time: what `sweep` finds unused
    for `max_idle_s` seconds goes, as another process may have erased the content. Blocks while
    another thread builds the same index: call it off the event loop.
    """

    def __init__(
        self,
        max_scopes: int = 256,
        max_tokens: int = 2_000_000,
        max_idle_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_scopes < 1 or max_tokens < 1:
            raise ValueError("a cache needs room for at least one scope and one token")
        self._max_scopes = max_scopes
        self._max_tokens = max_tokens
        self._max_idle_s = max_idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.builds = 0
        """Indexes built since the start: a metric, and what tests count."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def get(self, scope: Hashable, version: Hashable, load: Callable[[], RamIndex]) -> RamIndex:
        """The index of that version; `load` runs in the first caller's thread, the others wait.

        When `load` raises, the error goes to that caller and the next one tries again.
        """
        with self._lock:
            entry = self._entries.get(scope)
            if entry is None or entry.version != version:
                entry = self._entries[scope] = _Entry(version, 0.0)
            # The version was read just now: whatever is in use is what the store holds.
            entry.used_at = self._clock()
            self._entries.move_to_end(scope)
        with entry.lock:
            if entry.index is not None:
                return entry.index
            entry.index = index = load()
        with self._lock:
            self.builds += 1
            self._shrink()
        return index

    def drop(self, wanted: Callable[[Hashable], bool]) -> None:
        """Forgets the scopes that are `wanted`: after an erase nothing of them may stay in memory.

        To be called once the erase is committed: an index that is being built is handed to those
        who wait for it, but not kept, and a later one no longer finds the content.
        """
        with self._lock:
            for scope in [s for s in self._entries if wanted(s)]:
                del self._entries[scope]

    def sweep(self) -> None:
        """Forgets what has not been used for `max_idle_s` seconds."""
        limit = self._clock() - self._max_idle_s
        with self._lock:
            for scope in [s for s, e in self._entries.items() if e.used_at < limit]:
                del self._entries[scope]

    def _shrink(self) -> None:
        sizes = {s: e.index.tokens if e.index else 0 for s, e in self._entries.items()}
        total = sum(sizes.values())
        # The newest entry stays even when it alone is over the bound: its caller needs it anyway.
        while len(self._entries) > 1 and (
            len(self._entries) > self._max_scopes or total > self._max_tokens
        ):
            scope, _ = self._entries.popitem(last=False)
            total -= sizes[scope]
