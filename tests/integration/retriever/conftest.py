"""The retriever and its worker over an embedder that tests can switch off."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from tests.integration.retriever.embedder_double import EmbedderDouble, embedder_double
from tests.support.db import Database, Databases, Tenant
from tests.support.stack import Client, Stack

ENDED = (
    common_pb2.JOB_STATE_SUCCEEDED,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)


def rid() -> str:
    """A fresh request id."""
    return secrets.token_hex(8)


class Shelf:
    """One tenant's retriever with the few calls that most tests need."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stub = client.retriever

    async def create(self, collection: str = "docs", **values: Any) -> pb.Collection:
        request = pb.CreateCollectionRequest(request_id=rid(), collection_id=collection, **values)
        return (await self.stub.CreateCollection(request)).collection

    async def put(
        self, documents: dict[str, Any] | Sequence[pb.DocumentInput], collection: str = "docs"
    ) -> common_pb2.Job:
        """Stores documents (id -> text, or inputs) and waits for the job."""
        inputs = (
            [pb.DocumentInput(document_id=i, text=t) for i, t in documents.items()]
            if isinstance(documents, dict)
            else list(documents)
        )
        request = pb.UpsertDocumentsRequest(
            request_id=rid(), collection_id=collection, documents=inputs
        )
        return await self.wait((await self.stub.UpsertDocuments(request)).job)

    async def wait(self, job: common_pb2.Job) -> common_pb2.Job:
        """The job when it has ended."""
        last = job
        async for update in self.stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id), timeout=60):
            last = update.job
        assert last.state in ENDED
        return last

    async def search(self, query: str, *collections: str, **values: Any) -> pb.SearchResponse:
        """A search with the gate off, unless the test says otherwise: these tests are about the
        legs, and the double's vectors are no model's."""
        values.setdefault("gate", pb.GATE_MODE_OFF)
        scopes = values.pop("scopes", None) or [
            pb.SearchScope(collection_id=c) for c in collections or ("docs",)
        ]
        return await self.stub.Search(pb.SearchRequest(query=query, scopes=scopes, **values))

    async def found(self, query: str, **values: Any) -> list[str]:
        """Ids of the documents found, best first."""
        return [h.document_id for h in (await self.search(query, **values)).hits]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def double() -> AsyncIterator[EmbedderDouble]:
    async with embedder_double() as running:
        yield running


@pytest.fixture(scope="session")
def database(databases: Databases) -> Database:
    """One of these tests' own: the worker of `stack` must not take jobs that name the double's
    models."""
    return databases.new()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def retriever_stack(database: Database, double: EmbedderDouble) -> AsyncIterator[Stack]:
    running = Stack(
        database,
        services=("retriever",),
        targets={"embedder": f"127.0.0.1:{double.port}"},
        workers=False,
        overrides={
            "retriever": {
                "worker_in_process": True,
                "promote_at": 300,
                "embed_timeout_s": 2.0,
                "maintenance_dsn": database.role_dsn("maintenance"),
            }
        },
    )
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
def shelf(retriever_stack: Stack, tenant: Tenant, double: EmbedderDouble) -> Shelf:
    """A new tenant's retriever; the embedder works."""
    double.down = double.rerank_down = double.constant_scores = False
    double.rerank_delay_s = double.delay_s = 0.0
    double.away.clear()
    double.revision, double.other_vectors = "1", False
    return Shelf(retriever_stack.client(tenant))
