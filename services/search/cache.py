"""Bounded, locked cache of RAM indexes: one build per (scope, version), however many ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from services.search.bm25 import RamIndex


@dataclass
class _Entry:
    version: Hashable
    lock: threading.Lock = field(default_factory=threading.Lock)
    index: RamIndex | None = None


class RamIndexCache:
    """LRU of `RamIndex` keyed by scope, holding only the last version of each scope asked for.

    Bounded by scopes and by tokens (about 100 bytes each). Blocks while another thread builds
    the same index: call it off the event loop.
    """

    def __init__(self, max_scopes: int = 256, max_tokens: int = 2_000_000) -> None:
        if max_scopes < 1 or max_tokens < 1:
            raise ValueError("a cache needs room for at least one scope and one token")
        self._max_scopes = max_scopes
        self._max_tokens = max_tokens
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
                entry = self._entries[scope] = _Entry(version)
            self._entries.move_to_end(scope)
        with entry.lock:
            if entry.index is not None:
                return entry.index
            entry.index = index = load()
        with self._lock:
            self.builds += 1
            self._shrink()
        return index

    def drop(self, scope: Hashable) -> None:
        """Forgets a scope: after an erase nothing of it may stay in memory."""
        with self._lock:
            self._entries.pop(scope, None)

    def _shrink(self) -> None:
        sizes = {s: e.index.tokens if e.index else 0 for s, e in self._entries.items()}
        total = sum(sizes.values())
        # The newest entry stays even when it alone is over the bound: its caller needs it anyway.
        while len(self._entries) > 1 and (
            len(self._entries) > self._max_scopes or total > self._max_tokens
        ):
            scope, _ = self._entries.popitem(last=False)
            total -= sizes[scope]
