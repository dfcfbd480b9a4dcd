"""What the RPCs do to collections and documents, inside the transaction that the caller opened."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from nianlun.common.v1 import common_pb2
from services.common import errors, logs
from services.common.db import Connection, Database
from services.common.errors import DomainError
from services.common.jobs import JobRecord, Jobs
from services.retriever import writing
from services.retriever.calibrating import CALIBRATE
from services.retriever.domain import Collection, Document, Space, StoredChunk, Upload
from services.retriever.embedding import Embedder
from services.retriever.embeddings_jobs import REEMBED
from services.retriever.ingest import BACKFILL, INGEST
from services.retriever.merging import queue_merge
from services.retriever.parse import Pair
from services.retriever.promotion import queue_drop
from services.retriever.store import calibrations, collections, documents, items
from services.search import TOK_VERSION

MAX_SPACES: Final = 4
MIN_CALIBRATION_CHUNKS: Final = 20
_SECTION_PAGE: Final = 400


@dataclass(frozen=True)
class Library:
    """Collections, documents and the jobs about them."""

    db: Database
    jobs: Jobs
    embedder: Embedder
    default_model: str

    # ---- collections ---------------------------------------------------------------------------

    async def model(self, named: str) -> str:
        """The model a new collection gets: the named one if the embedder serves it, else its
        default. While the embedder is away the name is taken as it is."""
        try:
            served = await self.embedder.models()
        except DomainError as error:
            logs.get(__name__).warning("models_unknown", reason=error.reason)
            return named or self.default_model
        if not named:
            return next((m.model_id for m in served if m.default_embedder), self.default_model)
        if not any(m.model_id == named and m.dimensions > 0 for m in served):
            raise errors.invalid_argument("model_id", "the embedder serves no such model")
        return named

    async def create(
        self,
        conn: Connection,
        collection_id: str,
        display_name: str,
        description: str,
        recipe: str,
        model_id: str,
    ) -> Collection:
        """A new collection; ALREADY_EXISTS."""
        added = await collections.insert(
            conn, collection_id, display_name, description, recipe, model_id, TOK_VERSION
        )
        if not added:
            raise errors.already_exists("collection", collection_id)
        return await self.collection(conn, collection_id)

    async def collection(
        self, conn: Connection, collection_id: str, *, lock: bool = False
    ) -> Collection:
        """One collection; NOT_FOUND."""
        found = await collections.get(conn, collection_id, lock=lock)
        if found is None:
            raise errors.not_found("collection", collection_id)
        return found

    async def update(
        self,
        conn: Connection,
        collection_id: str,
        etag: str,
        display_name: str | None,
        description: str | None,
        recipe: str | None,
    ) -> Collection:
        """The collection with what is not None changed; NOT_FOUND, ETAG_MISMATCH."""
        found = await self.collection(conn, collection_id, lock=True)
        if etag and etag != found.etag:
            raise errors.etag_mismatch()
        await collections.update(conn, collection_id, display_name, description, recipe)
        return await self.collection(conn, collection_id)

    async def delete_collection(self, conn: Connection, collection_id: str) -> Collection:
        """Removes a collection with everything in it; returns what it was. NOT_FOUND."""
        found = await self.collection(conn, collection_id, lock=True)
        for space in found.spaces:
            await queue_drop(conn, self.jobs, collection_id, space)
        await collections.delete(conn, collection_id)
        return found

    # ---- documents -----------------------------------------------------------------------------

    async def upsert(
        self, conn: Connection, collection_id: str, uploads: Sequence[Upload]
    ) -> common_pb2.Job:
        """Keeps the content and queues the job that reads it. NOT_FOUND."""
        await self.collection(conn, collection_id)
        upload_id = str(uuid.uuid4())
        await documents.insert_uploads(conn, upload_id, collection_id, uploads)
        await documents.insert_pending(conn, collection_id, uploads)
        return await self._queue(
            conn,
            INGEST,
            {
                "collection_id": collection_id,
                "upload_id": upload_id,
                "documents": str(len(uploads)),
            },
            # One at a time for a collection: two versions of a document keep their order.
            lock=f"ingest\x1f{collection_id}",
            total=len(uploads),
            unit="documents",
        )

    async def document(self, conn: Connection, collection_id: str, document_id: str) -> Document:
        """One document; NOT_FOUND for it or its collection."""
        found = await documents.get(conn, collection_id, document_id)
        if found is None:
            raise errors.not_found("document", document_id)
        return found

    async def delete(
        self,
        conn: Connection,
        collection_id: str,
        document_ids: Sequence[str],
        *,
        allow_missing: bool,
    ) -> tuple[int, int, list[str]]:
        """Removes documents: (documents, chunks, missing ids). One that is missing fails the call
        with NOT_FOUND, unless that is allowed."""
        await self.collection(conn, collection_id, lock=True)
        there = await documents.ids_of(conn, collection_id, document_ids)
        missing = [i for i in document_ids if i not in there]
        if missing and not allow_missing:
            raise errors.not_found("document", missing[0])
        removed, chunks = await writing.remove_documents(conn, collection_id, sorted(there))
        await queue_merge(conn, self.jobs, collection_id)
        return removed, chunks, missing

    async def part(
        self,
        conn: Connection,
        collection_id: str,
        document_id: str,
        chunk_id: str,
        ordinal: int,
        before: int,
        after: int,
    ) -> tuple[StoredChunk, list[StoredChunk]]:
        """A chunk and those around it, in order; NOT_FOUND."""
        anchor: StoredChunk | None
        if chunk_id:
            anchor = await items.find_chunk(conn, collection_id, document_id, chunk_id)
        else:
            one = await items.section_chunks(conn, collection_id, document_id, ordinal, ordinal)
            anchor = one[0] if one else None
        if anchor is None:
            raise errors.not_found("chunk", chunk_id or str(ordinal))
        found = await items.section_chunks(
            conn, collection_id, document_id, anchor.ordinal - before, anchor.ordinal + after
        )
        return anchor, found

    async def section(
        self, conn: Connection, collection_id: str, anchor: StoredChunk
    ) -> list[StoredChunk]:
        """The chunks of the anchor's section that stand together with it."""
        near = await items.section_chunks(
            conn,
            collection_id,
            anchor.document_id,
            anchor.ordinal - _SECTION_PAGE,
            anchor.ordinal + _SECTION_PAGE,
        )
        inside = {c.ordinal: c for c in near if c.section == anchor.section}
        low = high = anchor.ordinal
        while low - 1 in inside:
            low -= 1
        while high + 1 in inside:
            high += 1
        return [inside[n] for n in range(low, high + 1)]

    # ---- embeddings ----------------------------------------------------------------------------

    async def backfill(self, conn: Connection, collection_id: str) -> common_pb2.Job:
        """Queues the embedding of what is pending. NOT_FOUND."""
        await self.collection(conn, collection_id)
        return await self._queue(
            conn, BACKFILL, {"collection_id": collection_id}, dedupe=collection_id, unit="chunks"
        )

    async def reembed(
        self, conn: Connection, collection_id: str, model_id: str, *, hold_switch: bool
    ) -> common_pb2.Job:
        """Adds the new space and queues its filling. The model was checked before."""
        found = await self.collection(conn, collection_id, lock=True)
        if model_id == found.model_id:
            raise errors.invalid_argument("model_id", "is the active model already")
        building = [s.model_id for s in found.spaces if s.state == "building"]
        if building and await collections.being_reembedded(conn, collection_id):
            raise errors.failed_precondition(
                "building", f"The collection is being embedded with {building[0]}."
            )
        # Left behind by a job that failed or was cancelled: gone, or gone on with.
        stale = [m for m in building if m != model_id]
        for left in stale:
            await self._drop(conn, collection_id, found.space(left))
        if found.space(model_id) is None and len(found.spaces) - len(stale) >= MAX_SPACES:
            raise errors.failed_precondition(
                "too_many_spaces", f"A collection has at most {MAX_SPACES} embedding spaces."
            )
        await collections.add_space(conn, collection_id, model_id, "building")
        return await self._queue(
            conn,
            REEMBED,
            {
                "collection_id": collection_id,
                "model_id": model_id,
                "hold_switch": str(hold_switch).lower(),
            },
            total=found.item_count,
            unit="chunks",
        )

    async def switch(
        self, conn: Connection, collection_id: str, model_id: str, *, drop_previous: bool
    ) -> Collection:
        """Makes another complete space the active one. NOT_FOUND, FAILED_PRECONDITION."""
        found = await self.collection(conn, collection_id, lock=True)
        target = model_id or found.previous_model_id or ""
        space = found.space(target)
        if space is None:
            raise errors.not_found("embedding space", target or "previous")
        if space.state == "building":
            raise errors.failed_precondition("building", "The space is being filled.")
        if target != found.model_id:
            if await items.count_pending(conn, collection_id, target) > 0:
                raise errors.failed_precondition("pending", "The space lacks vectors.")
            await collections.activate_space(conn, collection_id, target)
            gone: list[Space | None] = [found.active]
        else:
            # Nothing to switch: what else there is was left behind, perhaps of a model that is
            # served no longer.
            filled = await collections.being_reembedded(conn, collection_id)
            gone = [
                s
                for s in found.spaces
                if s.model_id != target and not (filled and s.state == "building")
            ]
        if drop_previous:
            for left in gone:
                await self._drop(conn, collection_id, left)
        return await self.collection(conn, collection_id)

    async def cancelled(self, conn: Connection, job: JobRecord) -> None:
        """Drops what a re-embedding leaves behind that is cancelled while no handler has it."""
        if job.kind != REEMBED or job.state != "cancelled":
            return
        collection_id = job.subject["collection_id"]
        found = await collections.get(conn, collection_id, lock=True)
        space = found.space(job.subject["model_id"]) if found else None
        if space is None or space.state != "building":
            return
        if not await collections.being_reembedded(conn, collection_id):
            await self._drop(conn, collection_id, space)

    async def _drop(self, conn: Connection, collection_id: str, space: Space | None) -> None:
        if space is not None:
            await queue_drop(conn, self.jobs, collection_id, space)
            await collections.drop_space(conn, collection_id, space.model_id)

    async def calibrate(
        self, conn: Connection, collection_id: str, pairs: Sequence[Pair]
    ) -> common_pb2.Job:
        """Keeps the pairs and queues the fitting. NOT_FOUND, FAILED_PRECONDITION."""
        found = await self.collection(conn, collection_id)
        space = found.active
        if space is None or space.vectors < MIN_CALIBRATION_CHUNKS:
            raise errors.failed_precondition(
                "too_few_chunks", f"At least {MIN_CALIBRATION_CHUNKS} chunks with vectors needed."
            )
        upload_id = str(uuid.uuid4())
        await calibrations.insert_pairs(conn, upload_id, [(p.query, p.document_ids) for p in pairs])
        return await self._queue(
            conn,
            CALIBRATE,
            {"collection_id": collection_id, "upload_id": upload_id},
            total=len(pairs),
            unit="queries",
        )

    async def _queue(
        self,
        conn: Connection,
        kind: str,
        subject: dict[str, str],
        *,
        lock: str | None = None,
        dedupe: str | None = None,
        total: int = 0,
        unit: str = "",
    ) -> common_pb2.Job:
        """A queued job in the API's form; it is not committed yet."""
        job_id = await self.jobs.enqueue(
            conn, kind, subject, lock=lock, dedupe=dedupe, total=total, unit=unit
        )
        job = common_pb2.Job(
            job_id=job_id,
            kind=kind,
            state=common_pb2.JOB_STATE_QUEUED,
            total=total,
            unit=unit,
            subject=subject,
        )
        job.create_time.FromDatetime(datetime.now(UTC))
        job.update_time.CopyFrom(job.create_time)
        return job
