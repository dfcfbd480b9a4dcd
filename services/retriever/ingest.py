"""The ingest job: reads uploads, embeds what is new, replaces each document in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from services.common import logs
from services.common.db import Connection, Database
from services.common.errors import DomainError
from services.common.jobs import JobRun, Jobs
from services.retriever import indexing, writing
from services.retriever.domain import (
    Collection,
    IndexedText,
    ModelVectors,
    ReadDocument,
    Upload,
)
from services.retriever.embedding import Embedder, served
from services.retriever.merging import queue_merge
from services.retriever.promotion import queue_build
from services.retriever.reading import reader
from services.retriever.reading.blocks import ReadError
from services.retriever.store import collections, documents, items
from services.retriever.store.sqltools import Row

INGEST: Final = "ingest"
BACKFILL: Final = "backfill"
_GROUP_DOCUMENTS: Final = 64
_GROUP_BYTES: Final = 4 * 1024 * 1024
_BACKFILL_DELAY_S: Final = 5.0


@dataclass
class Tally:
    """What the job reports at its end."""

    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    failed: int = 0
    chunks: int = 0
    vectors: int = 0
    pending: int = 0

    def result(self) -> dict[str, str]:
        """Counts as the job's result map."""
        return {name: str(value) for name, value in vars(self).items()}

    @classmethod
    def of(cls, result: Mapping[str, str]) -> Tally:
        """What earlier attempts of the job have counted."""
        return cls(**{name: int(result.get(name, 0)) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class _Group:
    """Documents that are read, embedded and written together."""

    documents: tuple[ReadDocument, ...]
    failures: tuple[tuple[Upload, ReadError], ...]
    texts: Mapping[bytes, IndexedText] = field(default_factory=dict)


@dataclass(frozen=True)
class Ingester:
    """Handler of ingest jobs. `promote_at`: vectors of a space from which an HNSW index pays;
    None: this process builds none."""

    db: Database
    jobs: Jobs
    embedder: Embedder
    executor: Executor
    promote_at: int | None

    async def run(self, job: JobRun) -> dict[str, str]:
        """Works off one upload. A rerun goes on with what is left of it."""
        upload_id = job.subject["upload_id"]
        collection_id = job.subject["collection_id"]
        tally = Tally.of(job.result)
        async with self.db.tenant() as conn:
            left = await documents.count_uploads(conn, upload_id)
        total = int(job.subject.get("documents", left))
        while True:
            await job.stop_if_cancelled()
            async with self.db.tenant() as conn:
                waiting = await documents.next_uploads(
                    conn, upload_id, _GROUP_DOCUMENTS, _GROUP_BYTES
                )
                collection = await collections.get(conn, collection_id)
            if not waiting or collection is None:
                break
            await self._group(job, collection, upload_id, waiting, tally)
            left -= len(waiting)
            await job.progress(total - max(left, 0), total)
        return tally.result()

    @staticmethod
    async def forget(conn: Connection, subject: Mapping[str, str]) -> None:
        """Removes what is left of the upload of a job that is removed."""
        await documents.drop_uploads(conn, subject["upload_id"])

    async def _group(
        self,
        job: JobRun,
        collection: Collection,
        upload_id: str,
        waiting: Sequence[Upload],
        tally: Tally,
    ) -> None:
        loop = asyncio.get_running_loop()
        fresh = await self._changed(job, collection, upload_id, waiting, tally)
        if not fresh:
            return
        group = await loop.run_in_executor(self.executor, _read, fresh)
        for upload, error in group.failures:
            await self._fail(job, collection, upload_id, upload, error, tally)
        if not group.documents:
            return
        models = await served(self.embedder)
        made = [await self._embed(collection, m, group.texts) for m in collection.writing(models)]
        async with self.db.tenant() as conn:
            await self._write(conn, collection, upload_id, group, made, models, tally)
            await job.keep(conn, tally.result())

    async def _changed(
        self,
        job: JobRun,
        collection: Collection,
        upload_id: str,
        waiting: Sequence[Upload],
        tally: Tally,
    ) -> list[Upload]:
        """Those uploads that have to be read; takes care of the others, whose content is what
        stands there already."""
        collection_id = collection.collection_id
        async with self.db.tenant() as conn:
            # The collection first, always: whoever deletes takes the locks in the same order.
            await collections.get(conn, collection_id, lock=True)
            there = await documents.current(conn, collection_id, [u.document_id for u in waiting])
            same = [u for u in waiting if _same(u, there.get(u.document_id))]
            taken = await documents.take_uploads(conn, upload_id, [u.position for u in same])
            renewed = [
                u
                for u in same
                if u.position in taken
                and (there[u.document_id]["metadata"], there[u.document_id]["uri"])
                != (u.metadata, u.uri)
            ]
            if renewed:
                await documents.put_metadata(conn, collection_id, renewed)
                await writing.changed(conn, collection_id)
            tally.replaced += len(renewed)
            tally.unchanged += len(taken) - len(renewed)
            if taken:
                await job.keep(conn, tally.result())
        known = {u.position for u in same}
        return [u for u in waiting if u.position not in known]

    async def _fail(
        self,
        job: JobRun,
        collection: Collection,
        upload_id: str,
        upload: Upload,
        error: ReadError,
        tally: Tally,
    ) -> None:
        document_id, reason = upload.document_id, "INVALID_ARGUMENT"
        async with self.db.tenant() as conn:
            if not await documents.take_uploads(conn, upload_id, [upload.position]):
                return
            await documents.put_failed(
                conn, collection.collection_id, document_id, reason, error.message
            )
            tally.failed += 1
            await job.item_error_in(conn, document_id, reason, error.message)
            await job.keep(conn, tally.result())

    async def _embed(
        self, collection: Collection, model_id: str, texts: Mapping[bytes, IndexedText]
    ) -> ModelVectors:
        """Vectors of the texts that have none. An embedder that is away leaves them pending."""
        async with self.db.tenant() as conn:
            done = await items.embedded(conn, collection.collection_id, model_id, list(texts))
        missing = [h for h in texts if h not in done]
        if not missing:
            return ModelVectors(model_id)
        try:
            batch = await self.embedder.documents(model_id, [texts[h].text for h in missing])
        except DomainError as error:
            logs.get(__name__).warning(
                "vectors_pending", model=model_id, texts=len(missing), reason=error.reason
            )
            return ModelVectors(model_id)
        return writing.vectors_of(model_id, missing, batch)

    async def _write(
        self,
        conn: Connection,
        collection: Collection,
        upload_id: str,
        group: _Group,
        made: Sequence[ModelVectors],
        models: frozenset[str] | None,
        tally: Tally,
    ) -> None:
        """One transaction: readers see each document as it was or as it is now."""
        collection_id = collection.collection_id
        locked = await collections.get(conn, collection_id, lock=True)
        if locked is None:
            return
        positions = await documents.take_uploads(
            conn, upload_id, [d.upload.position for d in group.documents]
        )
        taken = [d for d in group.documents if d.upload.position in positions]
        ids = [d.upload.document_id for d in taken]
        kept = await documents.current(conn, collection_id, ids)
        gone_chunks, lost = await items.remove_chunks(conn, collection_id, ids)
        new_items, new_length, numbers = await writing.add_items(
            conn, collection_id, taken, group.texts, self.executor
        )
        await documents.put_ready(conn, collection_id, taken)
        await items.insert_chunks(
            conn, collection_id, writing.stored_chunks(collection_id, taken, numbers)
        )
        gone_items, gone_length = await items.remove_unplaced(conn, collection_id, list(lost))
        chunks = sum(len(d.chunks) for d in taken)
        fresh = sum(1 for i in ids if i not in kept or kept[i]["revision"] == 0)
        await collections.count_up(
            conn,
            collection_id,
            documents=fresh,
            chunks=chunks - gone_chunks,
            items=new_items - gone_items,
            length=new_length - gone_length,
        )
        for vectors in made:
            tally.vectors += await writing.put_vectors(
                conn, self.jobs, collection_id, vectors, numbers
            )
        tally.created += fresh
        tally.replaced += len(taken) - fresh
        tally.chunks += chunks
        tally.pending += await self._follow_up(conn, locked, locked.writing(models), numbers)

    async def _follow_up(
        self,
        conn: Connection,
        collection: Collection,
        writing_to: Sequence[str],
        numbers: Mapping[bytes, int],
    ) -> int:
        """Queues what the write made necessary; returns how many texts lack an active vector."""
        collection_id = collection.collection_id
        pending = 0
        for model_id in writing_to:
            done = await items.embedded(conn, collection_id, model_id, list(numbers))
            lacking = len(numbers) - len(done)
            pending += lacking if model_id == collection.model_id else 0
            if lacking:
                await self.jobs.enqueue(
                    conn,
                    BACKFILL,
                    {"collection_id": collection_id},
                    dedupe=collection_id,
                    unit="chunks",
                    delay_s=_BACKFILL_DELAY_S,
                )
        await queue_merge(conn, self.jobs, collection_id)
        await queue_build(conn, self.jobs, collection_id, collection.active, self.promote_at)
        return pending


def _same(upload: Upload, old: Row | None) -> bool:
    """Whether reading the upload would give what stands there."""
    if old is None or old["state"] != "ready":
        return False
    if bytes(old["content_hash"]) != upload.content_hash or old["given_title"] != upload.title:
        return False
    if upload.format and upload.format != old["format"]:
        return False
    names = [reader.format_of_name(uri) for uri in (upload.uri, old["uri"])]
    if not upload.format and names[0] != names[1]:
        return False
    # Without a title of its own it comes from the uri's file name, perhaps.
    return bool(upload.title) or upload.uri == old["uri"]


def _read(uploads: Sequence[Upload]) -> _Group:
    """Reads, cuts and tokenises. Runs in an executor."""
    read: list[ReadDocument] = []
    failures: list[tuple[Upload, ReadError]] = []
    texts: dict[bytes, IndexedText] = {}
    for upload in uploads:
        try:
            document, indexed = indexing.read_upload(upload)
        except ReadError as error:
            failures.append((upload, error))
            continue
        read.append(document)
        for digest, part in zip(document.hashes, document.chunks, strict=True):
            if digest not in texts:
                texts[digest] = indexing.index_text(indexed[digest], part.text)
    return _Group(tuple(read), tuple(failures), texts)
