"""Search indexes of single users, in memory, valid for exactly one state of the database.

The version that a read transaction saw is part of the key: an index of another state is never used,
so a cache needs no invalidation to be right. `drop` exists so that erased content leaves memory at
once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
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
    `codecs`: of the items that have token vectors, in `items`.
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
    """LRU of user indexes, bounded by users and items. For one event loop: no locks."""

    def __init__(self, max_users: int, max_items: int) -> None:
        self._max_users = max_users
        self._max_items = max_items
        self._entries: OrderedDict[tuple[str, str, str], UserIndex] = OrderedDict()
        self._items = 0

    def get(
        self, tenant_id: str, user_id: str, kind: str, version: tuple[int, ...], model_id: str
    ) -> UserIndex | None:
        """The index of exactly that state; `model_id` "" takes whatever vectors it has."""
        key = (tenant_id, user_id, kind)
        found = self._entries.get(key)
        if found is None or found.version != version or model_id not in ("", found.model_id):
            return None
        self._entries.move_to_end(key)
        return found

    def put(self, tenant_id: str, user_id: str, kind: str, index: UserIndex) -> None:
        """Keep an index in place of an older one of the same user and kind."""
        key = (tenant_id, user_id, kind)
        self._forget(key)
        self._entries[key] = index
        self._items += len(index.items)
        while len(self._entries) > 1 and (
            len(self._entries) > self._max_users or self._items > self._max_items
        ):
            self._forget(next(iter(self._entries)))

    def drop(self, tenant_id: str, user_id: str) -> None:
        """Nothing of this user stays in memory."""
        for key in [k for k in self._entries if k[:2] == (tenant_id, user_id)]:
            self._forget(key)

    def _forget(self, key: tuple[str, str, str]) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._items -= len(old.items)
