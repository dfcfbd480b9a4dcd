"""Another model under the same id, and models that are served no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.retriever import embeddings_jobs
from services.retriever.embedding import Batch
from services.retriever.embeddings_jobs import Backfiller
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble
from tests.support.stack import Stack

SKIPPED = common_pb2.DEGRADATION_KIND_DENSE_LEG_SKIPPED


async def _space(shelf: Shelf, model_id: str = "small") -> pb.EmbeddingSpace:
    found = await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
    return next(s for s in found.collection.spaces if s.model_id == model_id)


async def _backfill(shelf: Shelf) -> common_pb2.Job:
    request = pb.BackfillEmbeddingsRequest(request_id=rid(), collection_id="docs")
    return await shelf.wait((await shelf.stub.BackfillEmbeddings(request)).job)


async def test_another_model_under_the_same_id_is_reported_and_kept_apart(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    double.revision, double.other_vectors = "2", True
    response = await shelf.search("heron reeds")
    assert [h.document_id for h in response.hits] == ["a"]
    skipped = next(d for d in response.degradations if d.kind == SKIPPED)
    assert skipped.metadata["reason"] == "MODEL_CHANGED"
    assert (skipped.metadata["stored_revision"], skipped.metadata["revision"]) == ("1", "2")
    job = await shelf.put({"b": "the stork nests on chimneys"})
    assert (job.state, job.result["pending"]) == (common_pb2.JOB_STATE_SUCCEEDED, "1")
    ended = await _backfill(shelf)
    assert ended.state == common_pb2.JOB_STATE_FAILED
    assert ended.error.reason == common_pb2.ERROR_REASON_MODEL_FAILED
    space = await _space(shelf)
    assert (space.vectors, space.pending, space.model_revision) == (1, 1, "1")
    # The old model is back: nothing was mixed.
    double.revision, double.other_vectors = "1", False
    assert (await _backfill(shelf)).state == common_pb2.JOB_STATE_SUCCEEDED
    assert not (await shelf.search("heron reeds")).degradations


@pytest.mark.parametrize("pending", [True, False])
async def test_a_revision_that_gives_the_same_vectors_is_taken_over_by_a_backfill(
    shelf: Shelf, double: EmbedderDouble, pending: bool
) -> None:
    await shelf.create()
    await shelf.put({f"d{n}": f"heron number {n}" for n in range(12)})
    double.revision = "2"
    assert SKIPPED in {d.kind for d in (await shelf.search("heron")).degradations}
    if pending:
        await shelf.put({"new": "the stork nests on chimneys"})
    assert (await _backfill(shelf)).state == common_pb2.JOB_STATE_SUCCEEDED
    space = await _space(shelf)
    assert (space.vectors, space.pending, space.model_revision) == (12 + pending, 0, "2")
    assert not (await shelf.search("heron")).degradations


async def test_a_revision_is_not_taken_over_without_one_comparison(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    double.revision, double.other_vectors = "2", True
    double.away["heron"] = "MODEL_FAILED"
    await _backfill(shelf)
    assert (await _space(shelf)).model_revision == "1"


async def test_an_emptied_space_takes_the_model_that_comes_next(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=["a"])
    )
    double.revision, double.other_vectors = "2", True
    await shelf.put({"b": "the stork nests on chimneys"})
    space = await _space(shelf)
    assert (space.vectors, space.model_revision) == (1, "2")
    assert not (await shelf.search("stork")).degradations


async def _reembed(shelf: Shelf, model: str, *, hold_switch: bool = False) -> common_pb2.Job:
    request = pb.StartReembedRequest(
        request_id=rid(), collection_id="docs", model_id=model, hold_switch=hold_switch
    )
    return (await shelf.stub.StartReembed(request)).job


async def _spaces(shelf: Shelf) -> dict[str, int]:
    found = await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
    return {s.model_id: s.state for s in found.collection.spaces}


async def test_the_space_of_a_model_that_is_gone_fails_no_job_and_can_be_dropped(
    shelf: Shelf, double: EmbedderDouble, retriever_stack: Stack
) -> None:
    app: Any = retriever_stack.apps["retriever"]
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    await shelf.wait(await _reembed(shelf, "large"))
    assert set(await _spaces(shelf)) == {"small", "large"}
    double.gone = {"small"}
    app._parts.embedder._models_until = 0.0
    try:
        job = await shelf.put({"b": "the stork nests on chimneys"})
        assert (job.state, job.result["pending"]) == (common_pb2.JOB_STATE_SUCCEEDED, "0")
        assert not (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="backfill"))).jobs
        ended = await _backfill(shelf)
        assert ended.state == common_pb2.JOB_STATE_SUCCEEDED
        assert ended.result["not_served"] == "small"
        changed = await shelf.stub.SwitchEmbedding(
            pb.SwitchEmbeddingRequest(
                request_id=rid(), collection_id="docs", model_id="large", drop_previous=True
            )
        )
    finally:
        double.gone = set()
        app._parts.embedder._models_until = 0.0
    assert [s.model_id for s in changed.collection.spaces] == ["large"]
    assert (await shelf.found("stork"))[0] == "b"


@pytest.mark.parametrize("pending", [True, False])
async def test_an_active_model_that_is_gone_keeps_no_other_space_from_being_filled(
    shelf: Shelf, double: EmbedderDouble, retriever_stack: Stack, pending: bool
) -> None:
    app: Any = retriever_stack.apps["retriever"]
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    await shelf.wait(await _reembed(shelf, "large"))
    double.down = pending
    await shelf.put({"b": "the stork nests on chimneys"})
    double.down = False
    double.gone = {"large"}
    app._parts.embedder._models_until = 0.0
    try:
        ended = await _backfill(shelf)
    finally:
        double.gone = set()
        app._parts.embedder._models_until = 0.0
    failed = common_pb2.JOB_STATE_FAILED
    assert ended.state == (failed if pending else common_pb2.JOB_STATE_SUCCEEDED)
    assert (await _space(shelf, "large")).pending == int(pending)
    assert (await _space(shelf, "small")).pending == 0


@pytest.mark.parametrize("dropped", [True, False])
async def test_a_backfill_makes_no_vectors_that_no_space_takes(
    shelf: Shelf, double: EmbedderDouble, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    await shelf.wait(await _reembed(shelf, "large", hold_switch=True))
    double.down = True
    await shelf.put({f"d{n}": f"the stork nests on chimney {n}" for n in range(4)})
    double.down = False
    asked: list[str] = []
    ask = Backfiller._documents

    async def meanwhile(job: Backfiller, model_id: str, texts: Sequence[str]) -> Batch:
        asked.extend(t for t in texts if model_id == "large" and "stork" in t)
        if len(asked) == 1 and dropped:
            # To the active model: drops the other space.
            await shelf.stub.SwitchEmbedding(
                pb.SwitchEmbeddingRequest(
                    request_id=rid(), collection_id="docs", model_id="small", drop_previous=True
                )
            )
        elif asked and not dropped:
            double.revision, double.away["heron"] = "2", "MODEL_FAILED"
        return await ask(job, model_id, texts)

    monkeypatch.setattr(embeddings_jobs, "_BATCH", 1)
    monkeypatch.setattr(Backfiller, "_documents", meanwhile)
    ended = await _backfill(shelf)
    assert len(asked) == 1
    failed = common_pb2.JOB_STATE_FAILED
    assert ended.state == (common_pb2.JOB_STATE_SUCCEEDED if dropped else failed)
    assert (await _space(shelf, "small")).pending == 0


async def test_a_switch_to_the_active_model_leaves_what_is_being_filled(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    double.away["heron"] = "OVERLOADED"
    job = await _reembed(shelf, "large")
    request = pb.SwitchEmbeddingRequest(
        request_id=rid(), collection_id="docs", model_id="small", drop_previous=True
    )
    await shelf.stub.SwitchEmbedding(request)
    assert (await _spaces(shelf))["large"] == pb.SPACE_STATE_BUILDING
    double.away.clear()
    assert (await shelf.wait(job)).state == common_pb2.JOB_STATE_SUCCEEDED


async def test_a_reembedding_that_is_cancelled_while_it_waits_leaves_no_space(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    double.away["heron"] = "OVERLOADED"
    job = await _reembed(shelf, "large")
    async for update in shelf.stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id), timeout=30):
        if update.job.state == common_pb2.JOB_STATE_RETRYING:
            break
    await shelf.stub.CancelJob(pb.CancelJobRequest(request_id=rid(), job_id=job.job_id))
    double.away.clear()
    assert (await shelf.wait(job)).state == common_pb2.JOB_STATE_CANCELLED
    async with asyncio.timeout(10):
        # One that ran at that moment drops it itself.
        while "large" in await _spaces(shelf):  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0.05)
    assert set(await _spaces(shelf)) == {"small"}
