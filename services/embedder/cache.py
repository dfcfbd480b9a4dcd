"""A least-recently-used cache bounded in bytes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from services.embedder.model import InputType, Kind, Vectors

Key = tuple[str, str, str, int, str, bytes]

# What a key and the dictionary's own entry cost, roughly.
_OVERHEAD = 400


def key(
    model: str,
    revision: str,
    input_type: InputType,
    max_tokens: int,
    kinds: frozenset[Kind],
    text: str,
) -> Key:
    """Identity of a result. The text enters as a hash, so that the cache holds no user text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return (model, revision, input_type.value, max_tokens, "+".join(sorted(kinds)), digest)


class VectorCache:
    """Vectors with their token count and truncation flag. Of size 0 it holds nothing."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[Vectors, int, bool]] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, wanted: Key) -> tuple[Vectors, int, bool] | None:
        """The entry, which becomes the youngest, or None."""
        entry = self._entries.get(wanted)
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(wanted)
        self.hits += 1
        return entry

    def put(self, wanted: Key, vectors: Vectors, tokens: int, truncated: bool) -> None:
        """Add an entry, dropping the oldest ones until it fits; too large a one is not kept."""
        size = vectors.nbytes() + _OVERHEAD
        if size > self._max_bytes or wanted in self._entries:
            return
        self._entries[wanted] = (vectors, tokens, truncated)
        self.bytes += size
        while self.bytes > self._max_bytes:
            _, (old, _, _) = self._entries.popitem(last=False)
            self.bytes -= old.nbytes() + _OVERHEAD
