"""A collection that is deleted, or deleted and made again, while a job works on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.retriever import merging
from services.retriever.embedding import Batch
from services.retriever.embeddings_jobs import Backfiller
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble
from tests.support.db import Database
from tests.support.stack import Stack

LEXICAL = [
    pb.LegSetting(leg=pb.LEG_DENSE, weight=0.0),
    pb.LegSetting(leg=pb.LEG_PHRASE, weight=0.0),
]


async def _delete(shelf: Shelf) -> None:
    await shelf.stub.DeleteCollection(
        pb.DeleteCollectionRequest(request_id=rid(), collection_id="docs")
    )


async def _job(shelf: Shelf, kind: str) -> common_pb2.Job:
    """The last job of a kind, waited for until it ends."""
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind=kind))).jobs
    return await shelf.wait(jobs[0])


def _rows(database: Database, shelf: Shelf, table: str) -> int:
    with database.connect() as conn:
        row = conn.execute(
            f"SELECT count(*) AS n FROM retriever.{table} WHERE tenant_id = %s",
            (shelf.client.tenant.tenant_id,),
        ).fetchone()
    assert row is not None
    return int(row["n"])


@pytest.mark.parametrize("again", [False, True])
async def test_d03_a_merge_leaves_nothing_of_a_collection_that_is_deleted_meanwhile(
    shelf: Shelf, database: Database, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()
    merged = merging._merged

    async def slowly(*args: Any) -> AsyncIterator[tuple[str, bytes]]:
        async for entry in merged(*args):
            yield entry
        under_way.set()
        await go_on.wait()

    monkeypatch.setattr(merging, "_merged", slowly)
    await shelf.create()
    async with asyncio.timeout(60):
        for n in range(merging.MERGE_AT + 1):
            await shelf.put({f"d{n}": f"canary number {n}"})
        await under_way.wait()
        await _delete(shelf)
        if again:
            await shelf.create()
            await shelf.put({"new": "something else entirely", "other": "and more"})
        go_on.set()
        assert (await _job(shelf, "merge_postings")).state == common_pb2.JOB_STATE_SUCCEEDED
    if not again:
        assert [_rows(database, shelf, t) for t in ("segments", "postings", "dead_items")] == [
            0
        ] * 3
        await shelf.create()
    assert await shelf.found("canary number", legs=LEXICAL) == []
    for n in range(merging.MERGE_AT + 4):
        job = await shelf.put({f"e{n}": f"later text {n}"})
        assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert await shelf.found("canary", legs=LEXICAL) == []
    assert await shelf.found("later 3", legs=LEXICAL, top_k=1) == ["e3"]


async def test_d01_an_index_in_memory_is_not_that_of_the_next_collection(
    shelf: Shelf, retriever_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = retriever_stack.apps["retriever"]
    # As in a replica that did not serve the deletion.
    monkeypatch.setattr(app._parts.searcher, "forget", lambda *args: None)
    one = pb.SearchScope(collection_id="docs", document_ids=["a"])
    for word, other in (("quokka", "numbat"), ("numbat", "quokka")):
        await shelf.create()
        await shelf.put({"a": f"the {word} sleeps"})
        assert await shelf.found(word, scopes=[one], legs=LEXICAL) == ["a"]
        assert await shelf.found(other, scopes=[one], legs=LEXICAL) == []
        await _delete(shelf)


class Held:
    """Holds back what jobs get from the embedder until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way, self.go_on = asyncio.Event(), asyncio.Event()
        ask = Backfiller._documents

        async def slowly(job: Backfiller, model_id: str, texts: Sequence[str]) -> Batch:
            batch = await ask(job, model_id, texts)
            self.under_way.set()
            await self.go_on.wait()
            return batch

        monkeypatch.setattr(Backfiller, "_documents", slowly)


async def test_d03_vectors_of_a_deleted_collection_do_not_get_into_the_next_one(
    shelf: Shelf, database: Database, double: EmbedderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    await shelf.create()
    double.down = True
    await shelf.put({f"d{n}": f"old text about canary{n}" for n in range(4)})
    double.down = False
    backfill = await shelf.stub.BackfillEmbeddings(
        pb.BackfillEmbeddingsRequest(request_id=rid(), collection_id="docs")
    )
    async with asyncio.timeout(30):
        await held.under_way.wait()
        await _delete(shelf)
        await shelf.create()
        double.down = True
        await shelf.put({f"d{n}": f"new words of item{n}" for n in range(4)})
        held.go_on.set()
        ended = await shelf.wait(backfill.job)
    assert ended.state == common_pb2.JOB_STATE_FAILED
    assert ended.error.reason == common_pb2.ERROR_REASON_NOT_FOUND
    assert _rows(database, shelf, "vectors") == 0


@pytest.mark.parametrize("again", [False, True])
async def test_s20_a_reembedding_switches_no_collection_but_its_own(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    await shelf.create()
    await shelf.put({f"d{n}": f"text number {n}" for n in range(4)})
    held = Held(monkeypatch)
    job = await shelf.stub.StartReembed(
        pb.StartReembedRequest(request_id=rid(), collection_id="docs", model_id="large")
    )
    async with asyncio.timeout(30):
        await held.under_way.wait()
        await _delete(shelf)
        if again:
            await shelf.create(model_id="small")
        held.go_on.set()
        ended = await shelf.wait(job.job)
    assert ended.state == common_pb2.JOB_STATE_FAILED
    assert ended.error.reason == common_pb2.ERROR_REASON_NOT_FOUND
    if again:
        collection = await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
        assert collection.collection.model_id == "small"
        assert [s.state for s in collection.collection.spaces] == [pb.SPACE_STATE_ACTIVE]
