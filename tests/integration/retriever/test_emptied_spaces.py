"""A space that had an HNSW index, lost its last vector, and gets those of another model."""

from __future__ import annotations

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.retriever.store import dense
from tests.integration.retriever import embedder_double
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble
from tests.support.db import Database


async def _space(shelf: Shelf) -> pb.EmbeddingSpace:
    found = await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
    space: pb.EmbeddingSpace
    (space,) = found.collection.spaces
    return space


async def _last(shelf: Shelf, kind: str) -> common_pb2.Job:
    """The only job of a kind, when it has ended."""
    (job,) = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind=kind))).jobs
    return await shelf.wait(job)


async def _emptied(shelf: Shelf) -> None:
    """A collection without a document whose space has an index."""
    await shelf.create()
    ids = [f"d{n}" for n in range(310)]
    # The build is queued by the write that finds enough vectors there.
    for part in (ids[:160], ids[160:-1], ids[-1:]):
        await shelf.put({i: f"heron number {i}" for i in part})
    await _last(shelf, "build_dense_index")
    assert (await _space(shelf)).index == pb.DENSE_INDEX_HNSW
    for part in (ids[:160], ids[160:]):
        await shelf.stub.DeleteDocuments(
            pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=part)
        )
    assert (await _space(shelf)).vectors == 0


def _indexes(database: Database, shelf: Shelf) -> int:
    name = dense.index_name(shelf.client.tenant.tenant_id, "docs", "small")
    with database.connect() as conn:
        return conn.execute("SELECT 1 FROM pg_indexes WHERE indexname = %s", (name,)).rowcount


async def test_the_index_of_an_emptied_space_goes_when_another_model_fills_it(
    shelf: Shelf, double: EmbedderDouble, database: Database
) -> None:
    await _emptied(shelf)
    double.revision, double.other_vectors = "2", True
    job = await shelf.put({"b": "the stork nests on chimneys"})
    assert (job.state, job.result["pending"]) == (common_pb2.JOB_STATE_SUCCEEDED, "0")
    space = await _space(shelf)
    assert (space.vectors, space.model_revision) == (1, "2")
    assert space.index == pb.DENSE_INDEX_EXACT
    assert not (await shelf.search("stork")).degradations
    assert (await _last(shelf, "drop_dense_index")).state == common_pb2.JOB_STATE_SUCCEEDED
    assert _indexes(database, shelf) == 0


async def test_vectors_of_other_dimensions_wait_until_the_index_of_an_emptied_space_is_gone(
    shelf: Shelf, double: EmbedderDouble, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _emptied(shelf)
    double.revision = "2"
    monkeypatch.setitem(embedder_double.DIMENSIONS, "small", 512)
    job = await shelf.put({"b": "the stork nests on chimneys"})
    assert (job.state, job.result["pending"]) == (common_pb2.JOB_STATE_SUCCEEDED, "1")
    assert (await _last(shelf, "backfill")).state == common_pb2.JOB_STATE_SUCCEEDED
    space = await _space(shelf)
    assert (space.vectors, space.pending, space.dimensions) == (1, 0, 512)
    assert (space.model_revision, space.index) == ("2", pb.DENSE_INDEX_EXACT)
    assert _indexes(database, shelf) == 0
    assert not (await shelf.search("stork")).degradations


async def test_an_emptied_space_keeps_its_index_for_the_same_model(
    shelf: Shelf, database: Database
) -> None:
    await _emptied(shelf)
    await shelf.put({"b": "the stork nests on chimneys"})
    assert (await _space(shelf)).index == pb.DENSE_INDEX_HNSW
    assert _indexes(database, shelf) == 1
    assert await shelf.found("stork nests") == ["b"]
