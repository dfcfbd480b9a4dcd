"""Background merge of posting segments: few long lists instead of many short ones, without what is
dead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.common.db import Connection, Database
from services.common.jobs import JobRun, Jobs
from services.retriever.domain import Collection
from services.retriever.store import collections, lexical
from services.retriever.store.lexical import Segment
from services.search import postings

MERGE_AT: Final = 10
"""Segments of one collection from which a merge is queued."""
MERGE: Final = "merge_postings"
_FLOOR: Final = 2_000
_DEAD_PART: Final = 4
_DEAD_DELAY_S: Final = 5.0
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


def _heavy(segment: Segment) -> bool:
    """Whether so much of a segment is dead that it is worth writing anew."""
    return segment.dead > 0 and segment.dead * _DEAD_PART >= segment.items


def runs(segments: Sequence[Segment]) -> list[list[Segment]]:
    """What is to be merged, each a run of neighbours: the newest where there are many segments, and
    those of which a quarter and more is dead, were it one alone.

    Neighbours, since a segment's items are a range of numbers. An item is rewritten for the dead
    beside it once for every quarter that dies.
    """
    newest = choose(segments) if len(segments) > MERGE_AT else []
    out: list[list[Segment]] = []
    run: list[Segment] = []
    for segment in segments[: len(segments) - len(newest)]:
        if _heavy(segment):
            run.append(segment)
        elif run:
            out.append(run)
            run = []
    run += reversed(newest)
    return [*out, run] if run else out


async def queue_merge(conn: Connection, jobs: Jobs, collection_id: str) -> None:
    """Queues a merge where one is due, in the transaction that made it so."""
    segments = await lexical.segments(conn, collection_id)
    many = len(segments) > MERGE_AT
    if not many and not any(map(_heavy, segments)):
        return
    await jobs.enqueue(
        conn,
        MERGE,
        {"collection_id": collection_id},
        lock=f"merge\x1f{collection_id}",
        dedupe=collection_id,
        # Who deletes one document often deletes more of them.
        delay_s=0.0 if many else _DEAD_DELAY_S,
    )


class _Gone(Exception):
    """The collection was deleted while its segments were merged: nothing of it may be written."""


@dataclass(frozen=True)
class Merger:
    """Handler of merge jobs."""

    db: Database

    async def run(self, job: JobRun) -> dict[str, str]:
        """Merges what is due. Readers see the old segments until the new one stands."""
        collection_id = job.subject["collection_id"]
        merged = 0
        while True:
            await job.stop_if_cancelled()
            async with self.db.tenant() as conn:
                # A number of its own transaction: holding the collection's row would stop writers.
                collection = await collections.get(conn, collection_id)
                if collection is None or not runs(await lexical.segments(conn, collection_id)):
                    break
                _, number = await collections.take_items(conn, collection_id, 0)
            try:
                done = await self._once(collection, number)
            except _Gone:
                break
            if not done:
                break
            merged += done
        return {"merged": str(merged)}

    async def _once(self, collection: Collection, number: int) -> int:
        """One run of segments in one transaction: how many it merged, 0 where nothing is due or
        another merge is under way."""
        async with self.db.tenant() as conn:
            if not await lexical.lock_merge(conn, collection.collection_id):
                return 0
            due = runs(await lexical.segments(conn, collection.collection_id))
            if not due:
                return 0
            await self._merge(conn, collection, due[-1], number)
            return len(due[-1])

    async def _merge(
        self, conn: Connection, collection: Collection, chosen: Sequence[Segment], number: int
    ) -> None:
        collection_id = collection.collection_id
        first = min(s.first_item for s in chosen)
        last = max(s.last_item for s in chosen)
        dead = await lexical.dead_between(conn, collection_id, first, last)
        gone = np.asarray(dead, np.uint32)
        merged = Segment(number, first, last, sum(s.items for s in chosen) - len(dead))
        if merged.items > 0:
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
