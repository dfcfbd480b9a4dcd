"""Search indexes of single users, in memory, valid for exactly one state of the database.

The version that a read transaction saw is part of the key: an index of another state is never
used, so a cache needs no invalidation to be right. Erased content leaves memory all the same: at
once where the erase ran (`drop`), elsewhere when it has not been used for a while (`sweep`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.memory.domain import Episode, Turn
from services.memory.vectors import ItemVectors
from services.search import phrase
from services.search.bm25 import RamIndex
from services.search.types import FloatArray, Item


@dataclass(frozen=True)
class UserIndex:
    """What can be searched of one user and one kind (notes or turns).

    `vectors` (n, d) belong to `vector_ids`; both are empty when nothing has a vector of `model_id`.
    `codecs`: of the items that have token vectors, in `items`. `beyond`: older ones that are not in
    it.
    """

    version: tuple[int, ...]
    model_id: str
    items: Mapping[str, Item]
    bm25: RamIndex
    vector_ids: tuple[str, ...]
    vectors: FloatArray
    codecs: Mapping[str, str]
    haystacks: Mapping[str, str]
    episodes: Mapping[str, Episode]
    turns: Mapping[str, Turn]
    beyond: int = 0

    @property
    def pending(self) -> int:
        """Items without a vector."""
        return len(self.items) - len(self.vector_ids)


def of_episodes(
    version: tuple[int, ...],
    model_id: str,
    rows: Sequence[tuple[Episode, list[str]]],
    vectors: Mapping[str, ItemVectors],
) -> UserIndex:
    """Index of notes with their terms and vectors."""
    items = {
        e.episode_id: _with(vectors.get(e.episode_id), Item(
            id=e.episode_id, text=e.note, group=e.session_id, time=e.event_time,
        ))
        for e, _ in rows
    }  # fmt: skip
    return _build(
        version, model_id, items, [terms for _, terms in rows], vectors,
        {e.episode_id: e.note for e, _ in rows}, {e.episode_id: e for e, _ in rows}, {},
    )  # fmt: skip


def of_turns(
    version: tuple[int, ...],
    model_id: str,
    rows: Sequence[tuple[Turn, list[str]]],
    vectors: Mapping[str, ItemVectors],
) -> UserIndex:
    """Index of turns with their terms and vectors."""
    items = {
        t.turn_id: _with(vectors.get(t.turn_id), Item(
            id=t.turn_id, text=t.text, group=t.session_id, position=t.sequence, time=t.event_time,
        ))
        for t, _ in rows
    }  # fmt: skip
    return _build(
        version, model_id, items, [terms for _, terms in rows], vectors,
        {t.turn_id: t.text for t, _ in rows}, {}, {t.turn_id: t for t, _ in rows},
    )  # fmt: skip


def _with(made: ItemVectors | None, item: Item) -> Item:
    if made is None:
        return item
    return replace(item, vector=made.vector, tokens=made.tokens.packed if made.tokens else None)


def _build(
    version: tuple[int, ...],
    model_id: str,
    items: Mapping[str, Item],
    terms: Sequence[list[str]],
    vectors: Mapping[str, ItemVectors],
    texts: Mapping[str, str],
    episodes: Mapping[str, Episode],
    turns: Mapping[str, Turn],
) -> UserIndex:
    ids = tuple(i for i in items if i in vectors)
    rows = [vectors[i].vector for i in ids]
    codecs = {i: tokens.codec for i in ids if (tokens := vectors[i].tokens) is not None}
    return UserIndex(
        version=version,
        model_id=model_id,
        items=items,
        bm25=RamIndex(list(items), terms),
        vector_ids=ids,
        vectors=np.stack(rows) if rows else np.zeros((0, 1), np.float32),
        codecs=codecs,
        haystacks={i: phrase.searchable(text) for i, text in texts.items()},
        episodes=episodes,
        turns=turns,
    )


class IndexCache:
    """LRU of user indexes, bounded by users, by items and by the time since they were used. For
    one event loop: no locks.

    The last part of a version comes from a sequence: what was written later has a greater one.
    """

    def __init__(
        self,
        max_users: int,
        max_items: int,
        max_idle_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_users = max_users
        self._max_items = max_items
        self._max_idle_s = max_idle_s
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()
        self._items = 0
        self._erased: dict[tuple[str, str], tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self, tenant_id: str, user_id: str, kind: str, version: tuple[int, ...], model_id: str
    ) -> UserIndex | None:
        """The index of exactly that state; `model_id` "" takes whatever vectors it has."""
        key = (tenant_id, user_id, kind)
        kept = self._entries.get(key)
        if kept is None or kept.index.version != version:
            return None
        if model_id not in ("", kept.index.model_id):
            return None
        kept.used_at = self._clock()
        self._entries.move_to_end(key)
        return kept.index

    def put(self, tenant_id: str, user_id: str, kind: str, index: UserIndex) -> None:
        """Keep an index in place of an older one of the same user and kind. One of a state before
        an erase is not kept: its reader began before that was committed."""
        key = (tenant_id, user_id, kind)
        erased, _ = self._erased.get(key[:2], (-1, 0.0))
        if index.version[-1] <= erased:
            return
        self._forget(key)
        self._entries[key] = _Kept(index, self._clock())
        self._items += len(index.items)
        while len(self._entries) > 1 and (
            len(self._entries) > self._max_users or self._items > self._max_items
        ):
            self._forget(next(iter(self._entries)))

    def drop(self, tenant_id: str, user_id: str, version: int) -> None:
        """Nothing of this user's states up to `version` stays in memory or comes back to it, though
        the erase is not committed yet."""
        self._erased[tenant_id, user_id] = (version, self._clock())
        for key in [k for k in self._entries if k[:2] == (tenant_id, user_id)]:
            self._forget(key)

    def sweep(self) -> None:
        """Forgets what has not been used for `max_idle_s` seconds, as another process may have
        erased it, and erases that every reader of an older state has outlived."""
        limit = self._clock() - self._max_idle_s
        for key in [k for k, kept in self._entries.items() if kept.used_at < limit]:
            self._forget(key)
        for user in [u for u, (_, at) in self._erased.items() if at < limit]:
            del self._erased[user]

    def _forget(self, key: tuple[str, str, str]) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._items -= len(old.index.items)


@dataclass
class _Kept:
    index: UserIndex
    used_at: float
