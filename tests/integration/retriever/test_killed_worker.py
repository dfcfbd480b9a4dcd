"""Re-embedding when its worker dies half-way: another goes on, once, and readers see nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest_asyncio

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble
from tests.support import keys
from tests.support.db import Database, Databases
from tests.support.processes import service_process
from tests.support.stack import Stack

DOCUMENTS = 400


@pytest_asyncio.fixture(loop_scope="session")
async def library(
    databases: Databases, double: EmbedderDouble
) -> AsyncIterator[tuple[Shelf, Database]]:
    """A retriever without a worker, on a database of its own."""
    database = databases.new()
    double.down = False
    double.delay_s = 0.0
    stack = Stack(
        database,
        services=("retriever",),
        targets={"embedder": f"127.0.0.1:{double.port}"},
        workers=False,
    )
    await stack.start()
    try:
        yield Shelf(stack.client()), database
    finally:
        double.delay_s = 0.0
        await stack.stop()


def _environment(database: Database, double: EmbedderDouble) -> dict[str, str]:
    return {
        "NIANLUN_RETRIEVER_DATABASE_DSN": database.role_dsn("retriever"),
        "NIANLUN_RETRIEVER_EMBEDDER_TARGET": f"127.0.0.1:{double.port}",
        "NIANLUN_SERVICE_KEY": keys.create(
            database.owner_dsn, "nianlun:service", scopes=("service",)
        ),
        "NIANLUN_JOBS_POLL_S": "0.2",
        "NIANLUN_JOBS_HEARTBEAT_S": "0.5",
        "NIANLUN_JOBS_LEASE_S": "5",
        "NIANLUN_JOBS_STALLED_CHECK_S": "0.5",
    }


async def _job(shelf: Shelf, job_id: str) -> common_pb2.Job:
    return (await shelf.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job


async def _spaces(shelf: Shelf) -> dict[str, pb.EmbeddingSpace]:
    request = pb.GetCollectionRequest(collection_id="docs")
    found = (await shelf.stub.GetCollection(request)).collection
    return {s.model_id: s for s in found.spaces}


async def _some_vectors(shelf: Shelf) -> None:
    while True:
        if (await _spaces(shelf))["large"].vectors > 0:
            return
        await asyncio.sleep(0.05)


async def _models(shelf: Shelf) -> list[str]:
    response = await shelf.search("topic3 word10")
    assert len(response.hits) == 10
    return list(response.explanation.model_ids)


async def test_s20_a_killed_workers_reembedding_goes_on_where_it_was(
    library: tuple[Shelf, Database], double: EmbedderDouble
) -> None:
    shelf, database = library
    environment = _environment(database, double)
    await shelf.create()
    texts = {f"d{n}": f"passage {n} about topic{n % 7} and word{n}" for n in range(DOCUMENTS)}
    parts = list(texts.items())
    async with service_process("services.retriever.worker", environment) as worker:
        await worker.ready()
        for first in range(0, DOCUMENTS, 200):
            await shelf.put(dict(parts[first : first + 200]))
        double.delay_s = 0.25
        started = await shelf.stub.StartReembed(
            pb.StartReembedRequest(request_id=rid(), collection_id="docs", model_id="large")
        )
        job_id = started.job.job_id
        async with asyncio.timeout(60):
            await _some_vectors(shelf)
        worker.process.send_signal(signal.SIGKILL)
        await worker.wait()
    half = (await _spaces(shelf))["large"]
    assert 0 < half.vectors < DOCUMENTS
    assert half.state == pb.SPACE_STATE_BUILDING
    assert await _models(shelf) == ["small"]
    double.delay_s = 0.0
    before = double.texts
    async with service_process("services.retriever.worker", environment) as worker:
        await worker.ready()
        async with asyncio.timeout(90):
            while (job := await _job(shelf, job_id)).state != common_pb2.JOB_STATE_SUCCEEDED:
                assert job.state in (
                    common_pb2.JOB_STATE_QUEUED,
                    common_pb2.JOB_STATE_RUNNING,
                    common_pb2.JOB_STATE_RETRYING,
                )
                if (await _spaces(shelf))["large"].state == pb.SPACE_STATE_BUILDING:
                    assert await _models(shelf) in (["small"], ["large"])
                await asyncio.sleep(0.1)
    assert job.attempts == 2
    # What was there is not embedded again; the rest is, with a few passages to verify the space and
    # a call that the killed worker had on its way.
    assert double.texts - before <= DOCUMENTS - half.vectors + 8 + 16
    full = (await _spaces(shelf))["large"]
    assert (full.vectors, full.pending, full.state) == (DOCUMENTS, 0, pb.SPACE_STATE_ACTIVE)
    assert await _models(shelf) == ["large"]
    back = await shelf.stub.SwitchEmbedding(
        pb.SwitchEmbeddingRequest(request_id=rid(), collection_id="docs")
    )
    assert back.collection.model_id == "small"
    assert await _models(shelf) == ["small"]
