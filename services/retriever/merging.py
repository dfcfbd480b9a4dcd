"""Background merge of posting segments: few long lists instead of many short ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.common.db import Connection, Database
from services.common.jobs import JobRun
from services.retriever.domain import Collection
from services.retriever.store import collections, lexical
from services.retriever.store.lexical import Segment
from services.search import postings

MERGE_AT: Final = 10
"""Segments of one collection from which a merge is queued."""
_FLOOR: Final = 2_000
_BATCH_TERMS: Final = 5_000


def choose(segments: Sequence[Segment]) -> list[Segment]:
    """The newest segments that are worth merging: small against what they are merged with.

    A segment joins while it holds at most four times the items of all newer ones together (or is
    small), so an item is rewritten a logarithmic number of times.
    """
    chosen: list[Segment] = []
    total = 0
    for segment in reversed(segments):
        if chosen and segment.items > max(4 * total, _FLOOR):
            break
        chosen.append(segment)
        total += segment.items
    return chosen if len(chosen) > 1 else []


class _Gone(Exception):
    """The collection was deleted while its segments were merged: nothing of it may be written."""


@dataclass(frozen=True)
class Merger:
    """Handler of merge jobs."""

    db: Database

    async def run(self, job: JobRun) -> dict[str, str]:
        """Merges once. Readers see the old segments until the new one stands."""
        collection_id = job.subject["collection_id"]
        async with self.db.tenant() as conn:
            # A number of its own transaction: holding the collection's row would stop writers.
            collection = await collections.get(conn, collection_id)
            if collection is None:
                return {"merged": "0"}
            _, number = await collections.take_items(conn, collection_id, 0)
        try:
            async with self.db.tenant() as conn:
                if not await lexical.lock_merge(conn, collection_id):
                    return {"merged": "0"}
                chosen = choose(await lexical.segments(conn, collection_id))
                if chosen:
                    await self._merge(conn, collection, chosen, number)
        except _Gone:
            return {"merged": "0"}
        return {"merged": str(len(chosen))}

    async def _merge(
        self, conn: Connection, collection: Collection, chosen: Sequence[Segment], number: int
    ) -> None:
        collection_id = collection.collection_id
        first = min(s.first_item for s in chosen)
        last = max(s.last_item for s in chosen)
        dead = await lexical.dead_between(conn, collection_id, first, last)
        gone = np.asarray(dead, np.uint32)
        merged = Segment(number, first, last, sum(s.items for s in chosen) - len(dead))
        await lexical.write_segment(conn, collection_id, merged, [])
        batch: list[tuple[str, bytes]] = []
        async for term, entries in _merged(conn, collection_id, chosen, gone):
            batch.append((term, entries))
            if len(batch) >= _BATCH_TERMS:
                await lexical.append(conn, collection_id, number, batch)
                batch = []
        await lexical.append(conn, collection_id, number, batch)
        # Before anything is removed, as every writer does it: only now, since it stops the others.
        if await collections.still(conn, collection) is None:
            raise _Gone
        await lexical.drop_segments(conn, collection_id, [s.segment for s in chosen])
        await lexical.drop_dead(conn, collection_id, dead)


async def _merged(
    conn: Connection, collection_id: str, chosen: Sequence[Segment], dead: np.ndarray
) -> AsyncIterator[tuple[str, bytes]]:
    numbers = [s.segment for s in chosen]
    async for term, parts in lexical.terms_of(conn, collection_id, numbers):
        entries = postings.merge([postings.unpack(p) for p in parts], dead)
        if entries:
            yield term, entries
