"""Jobs around vectors: backfill of pending ones, and re-embedding with another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.common import errors
from services.common.db import Database
from services.common.jobs import JobCancelled, JobRun, Jobs, Quarantine, Retry
from services.retriever.chunking import content_hash
from services.retriever.domain import Collection, ModelVectors
from services.retriever.embedding import Batch, Embedder, served
from services.retriever.indexing import indexed_passage
from services.retriever.promotion import queue_build, queue_drop
from services.retriever.store import collections, items
from services.retriever.store.items import PlacedText
from services.retriever.writing import put_vectors, vectors_of

REEMBED: Final = "reembed"
_BATCH: Final = 128
_SAMPLE: Final = 8
_MAX_ITEM_ERRORS: Final = 100
_SAME: Final = 0.99
_OTHER_MODEL: Final = (
    "The model gives other vectors than it did: serve it under another id and re-embed with that."
)
_NOT_COMPARED: Final = "The model has another revision, and no stored vector to compare it with."


@dataclass(frozen=True)
class Backfiller:
    """Handler of backfill and re-embedding jobs. `promote_at`: as for `Ingester`."""

    db: Database
    jobs: Jobs
    embedder: Embedder
    promote_at: int | None

    async def backfill(self, job: JobRun) -> dict[str, str]:
        """Embeds what is pending in every space of the collection. One that fails keeps no other
        from being filled; the job fails then, or waits while any of the failures passes."""
        collection_id = job.subject["collection_id"]
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        if collection is None:
            return {"vectors": "0"}
        made = 0
        failures: list[Retry | Quarantine] = []
        models = await served(self.embedder)
        writing = collection.writing(models)
        for model_id in writing:
            try:
                filled = await self._fill(job, collection, model_id)
                # A model that is served no longer cannot be compared with anything.
                if not filled and (models is None or model_id in models):
                    await self._adopt(collection_id, model_id)
                made += filled
            except (Retry, Quarantine) as failure:
                failures.append(failure)
            await job.stop_if_cancelled()
        # What passes comes first: a failed job is not run again.
        failures.sort(key=lambda failure: isinstance(failure, Quarantine))
        if failures:
            raise failures[0]
        # Spaces of models that are served no longer stay as they are.
        left = [s.model_id for s in collection.spaces if s.model_id not in writing]
        return {"vectors": str(made), **({"not_served": ", ".join(left)} if left else {})}

    async def reembed(self, job: JobRun) -> dict[str, str]:
        """Fills the new space, verifies it and switches. A rerun goes on where it was."""
        collection_id, model_id = job.subject["collection_id"], job.subject["model_id"]
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
            space = collection.space(model_id) if collection else None
        if collection is None or space is None:
            raise Quarantine("NOT_FOUND", "The collection or its new space is gone.")
        if space.state == "active":
            return {"switched": "true", "vectors": str(space.vectors)}
        made = await self._fill(job, collection, model_id)
        if await job.cancelled():
            async with self.db.tenant() as conn:
                await queue_drop(conn, self.jobs, collection_id, space)
                await collections.drop_space(conn, collection_id, model_id)
            raise JobCancelled(job.job_id)
        checked, _ = await self._verify(collection_id, model_id)
        switched = job.subject.get("hold_switch") != "true"
        async with self.db.tenant() as conn:
            # Writers wait here, so nothing can be added that the new space lacks.
            if await collections.still(conn, collection) is None:
                raise Quarantine("NOT_FOUND", "The collection is gone.")
            if await items.count_pending(conn, collection_id, model_id) > 0:
                raise Retry("FAILED_PRECONDITION", 1.0, "Passages were added meanwhile.")
            if switched:
                await collections.activate_space(conn, collection_id, model_id)
                full = await collections.get(conn, collection_id)
                active = full.active if full else None
                await queue_build(conn, self.jobs, collection_id, active, self.promote_at)
            else:
                await collections.set_space_state(conn, collection_id, model_id, "ready")
        return {
            "switched": str(switched).lower(),
            "vectors": str(made),
            "verified": str(checked),
        }

    async def _fill(self, job: JobRun, collection: Collection, model_id: str) -> int:
        """Embeds all pending texts of a space in order of item; returns how many it made."""
        collection_id = collection.collection_id
        async with self.db.tenant() as conn:
            total = await items.count_pending(conn, collection_id, model_id)
            now = await collections.get(conn, collection_id)
        existing = now.space(model_id) if now else None
        base = existing.vectors if existing else 0
        made = skipped = 0
        after = 0
        while not await job.cancelled():
            async with self.db.tenant() as conn:
                waiting = await items.pending(conn, collection_id, model_id, after, _BATCH)
            if not waiting:
                break
            after = waiting[-1].item
            batch = await self._documents(model_id, [_text(p) for p in waiting])
            added = await self._store(collection, model_id, waiting, batch)
            refused = not added and any(e.vector is not None for e in batch.items)
            # Of a changed model they go in now, or the job fails.
            if refused and await self._adopt(collection_id, model_id):
                added = await self._store(collection, model_id, waiting, batch)
            elif refused and not await self._takes(collection_id, model_id, batch):
                break
            made += added
            await job.progress(base + made, base + total)
            if batch.passing is not None:
                # Nothing is wrong with those texts: what was made is kept, the rest comes later.
                raise _later(batch.passing)
            for placed, embedded in zip(waiting, batch.items, strict=True):
                if embedded.vector is None:
                    skipped += 1
                    if skipped <= _MAX_ITEM_ERRORS:
                        reason = embedded.error.reason if embedded.error else "MODEL_FAILED"
                        await job.item_error(
                            placed.document_id, reason, "The model failed on one passage."
                        )
        if skipped:
            raise Quarantine("MODEL_FAILED", f"The model failed on {skipped} passages.")
        return made

    async def _documents(self, model_id: str, texts: Sequence[str]) -> Batch:
        try:
            return await self.embedder.documents(model_id, texts)
        except errors.DomainError as error:
            if error.retryable:
                raise _later(error) from error
            raise Quarantine(error.reason, error.message) from error

    async def _store(
        self, collection: Collection, model_id: str, waiting: Sequence[PlacedText], batch: Batch
    ) -> int:
        hashes = [content_hash(f"{p.item}") for p in waiting]
        numbers = {h: p.item for h, p in zip(hashes, waiting, strict=True)}
        made: ModelVectors = vectors_of(model_id, hashes, batch)
        async with self.db.tenant() as conn:
            # The same order of locks as every writer: the collection first.
            if await collections.still(conn, collection) is None:
                raise Quarantine("NOT_FOUND", "The collection is gone.")
            return await put_vectors(conn, self.jobs, collection.collection_id, made, numbers)

    async def _takes(self, collection_id: str, model_id: str, batch: Batch) -> bool:
        """Whether a space that took nothing of a batch may take the next one; False when it is
        gone. The job fails where all would be made in vain."""
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        space = collection.space(model_id) if collection else None
        if space is None:
            return False
        if not space.vectors:
            # See `takes_vectors`; the index may be gone by now.
            raise Retry("FAILED_PRECONDITION", 1.0, "The former index is being dropped.")
        if not space.made_by(batch.revision, batch.dimensions):
            raise Quarantine("MODEL_FAILED", _NOT_COMPARED)
        return True

    async def _adopt(self, collection_id: str, model_id: str) -> bool:
        """Looks closer where the model has another revision than the space: one that gives the same
        vectors (another address, another precision) is the space's from now on, then True; with
        other vectors the job fails."""
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        space = collection.space(model_id) if collection else None
        if space is None or not space.vectors:
            return False
        checked, revision = await self._verify(collection_id, model_id)
        if not checked or space.made_by(revision, space.dimensions):
            return False
        async with self.db.tenant() as conn:
            await collections.get(conn, collection_id, lock=True)
            await collections.set_revision(
                conn, collection_id, model_id, space.model_revision, revision
            )
        return True

    async def _verify(self, collection_id: str, model_id: str) -> tuple[int, str]:
        """Embeds some stored passages again: their vectors must be what stands in the space. How
        many it compared, and the model's revision."""
        async with self.db.tenant() as conn:
            sample = await items.sample_texts(conn, collection_id, model_id, _SAMPLE)
            stored = await items.vectors_of(conn, collection_id, model_id, [p.item for p in sample])
        sample = [p for p in sample if p.item in stored]
        if not sample:
            return 0, ""
        batch = await self._documents(model_id, [_text(p) for p in sample])
        if batch.passing is not None:
            raise _later(batch.passing)
        compared = 0
        for placed, embedded in zip(sample, batch.items, strict=True):
            if embedded.vector is None:
                continue
            compared += 1
            if embedded.vector.shape != stored[placed.item].shape:
                raise Quarantine("MODEL_FAILED", _OTHER_MODEL)
            if float(np.dot(embedded.vector, stored[placed.item])) < _SAME:
                raise Quarantine("MODEL_FAILED", _OTHER_MODEL)
        return compared, batch.revision


def _later(error: errors.DomainError) -> Retry:
    return Retry(error.reason, error.retry_after_s, "The embedder is away.")


def _text(placed: PlacedText) -> str:
    return indexed_passage(placed.title, placed.document_id, placed.section, placed.text)
