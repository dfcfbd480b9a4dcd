"""What a write does to the tables, inside the transaction that its caller opened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from services.common import logs
from services.common.db import Connection
from services.common.jobs import Jobs
from services.retriever import indexing
from services.retriever.domain import IndexedText, ModelVectors, ReadDocument, StoredChunk
from services.retriever.embedding import Batch
from services.retriever.promotion import takes_vectors
from services.retriever.store import collections, documents, items, lexical


def vectors_of(model_id: str, hashes: Sequence[bytes], batch: Batch) -> ModelVectors:
    """A batch of the embedder by content hash; texts it could not embed are left out."""
    pairs = list(zip(hashes, batch.items, strict=True))
    return ModelVectors(
        model_id=model_id,
        revision=batch.revision,
        dimensions=batch.dimensions,
        vectors={h: e.vector for h, e in pairs if e.vector is not None},
        tokens={h: e.tokens for h, e in pairs if e.vector is not None and e.tokens is not None},
    )


async def put_vectors(
    conn: Connection,
    jobs: Jobs,
    collection_id: str,
    made: ModelVectors,
    numbers: Mapping[bytes, int],
) -> int:
    """Stores vectors of items; returns how many are new. What cannot be stored stays pending."""
    if not made.vectors:
        return 0
    space = await collections.describe_space(
        conn, collection_id, made.model_id, made.revision, made.dimensions
    )
    if space is None or not space.made_by(made.revision, made.dimensions):
        # Another model under the old name: its vectors cannot be compared with those stored. They
        # stay pending, and the backfill looks closer.
        logs.get(__name__).error(
            "model_changed",
            model=made.model_id,
            revision=made.revision,
            stored=space.model_revision if space else "",
        )
        return 0
    if not await takes_vectors(conn, jobs, collection_id, space):
        return 0
    by_item = {numbers[h]: v for h, v in made.vectors.items() if h in numbers}
    added = await items.insert_vectors(conn, collection_id, made.model_id, by_item)
    tokens = {numbers[h]: t for h, t in made.tokens.items() if h in numbers}
    if tokens:
        await items.insert_token_vectors(conn, collection_id, made.model_id, tokens)
    await collections.count_vectors(conn, collection_id, made.model_id, added)
    return added


async def add_items(
    conn: Connection,
    collection_id: str,
    taken: Sequence[ReadDocument],
    texts: Mapping[bytes, IndexedText],
    executor: Executor,
) -> tuple[int, int, dict[bytes, int]]:
    """Adds texts that the collection lacks: (items, their length, numbers of all texts)."""
    wanted = list(dict.fromkeys(h for d in taken for h in d.hashes))
    numbers = await items.known(conn, collection_id, wanted)
    new = [texts[h] for h in wanted if h not in numbers]
    if not new:
        return 0, 0, numbers
    first, segment = await collections.take_items(conn, collection_id, len(new))
    await items.insert(conn, collection_id, first, new)
    packed = await asyncio.get_running_loop().run_in_executor(
        executor, indexing.pack_segment, first, new
    )
    part = lexical.Segment(segment, first, first + len(new) - 1, len(new))
    await lexical.write_segment(conn, collection_id, part, packed)
    numbers.update({t.content_hash: number for number, t in enumerate(new, first)})
    return len(new), sum(t.length for t in new), numbers


def stored_chunks(
    collection_id: str, taken: Sequence[ReadDocument], numbers: Mapping[bytes, int]
) -> list[StoredChunk]:
    """The chunks of documents as rows, numbered by their texts' items."""
    return [
        StoredChunk(
            document_id=document.upload.document_id,
            ordinal=ordinal,
            chunk_id=indexing.chunk_uuid(collection_id, document.upload.document_id, ordinal, part),
            item=numbers[digest],
            kind=int(part.kind),
            section=part.section,
            text=part.text,
            header=part.header,
            start_char=part.start,
            end_char=part.end,
            page=part.page,
        )
        for document in taken
        for ordinal, (part, digest) in enumerate(zip(document.chunks, document.hashes, strict=True))
    ]


async def changed(conn: Connection, collection_id: str) -> None:
    """Counts a change that touched no chunk, so that cached indexes and readers notice."""
    await collections.count_up(conn, collection_id, documents=0, chunks=0, items=0, length=0)


async def remove_documents(
    conn: Connection, collection_id: str, document_ids: Sequence[str]
) -> tuple[int, int]:
    """Removes documents with everything derived from them: (documents, chunks) removed.

    The caller has locked the collection. Gone from every leg when the transaction commits.
    """
    there = await documents.current(conn, collection_id, document_ids)
    counted = [i for i, old in there.items() if old["revision"] > 0]
    chunks, lost = await items.remove_chunks(conn, collection_id, document_ids)
    gone_items, gone_length = await items.remove_unplaced(conn, collection_id, list(lost))
    await documents.delete(conn, collection_id, document_ids)
    await collections.count_up(
        conn,
        collection_id,
        documents=-len(counted),
        chunks=-chunks,
        items=-gone_items,
        length=-gone_length,
    )
    return len(document_ids), chunks
