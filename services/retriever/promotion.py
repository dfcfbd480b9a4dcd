"""HNSW indexes: built for a space beyond exact scans, checked for recall, dropped with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from pydantic import SecretStr

from services.common import context, logs
from services.common.db import Connection, Database
from services.common.jobs import JobRun, Jobs, Quarantine
from services.retriever.domain import MAX_DIMENSIONS, Space
from services.retriever.store import collections, dense

PROMOTE: Final = "build_dense_index"
DEMOTE: Final = "drop_dense_index"
# 0.98 is promised. So many probes tell it from 0.95, where an index loses one question in twenty.
_RECALL: Final = 0.99
_K: Final = 20
_PROBES: Final = 100
_WIDTHS: Final = (64, 100, 200, 400, 800)
# The second graph takes three times as long to build; few collections need it.
_GRAPHS: Final = (dense.Graph(m=16, ef_construction=100), dense.Graph(m=32, ef_construction=200))


async def queue_build(
    conn: Connection, jobs: Jobs, collection_id: str, space: Space | None, promote_at: int | None
) -> None:
    """Queues the building of a space's index where it is due. `promote_at` None: never."""
    if promote_at is None or space is None or not space.wants_index(promote_at):
        return
    key = f"{collection_id}\x1f{space.model_id}"
    subject = {"collection_id": collection_id, "model_id": space.model_id}
    await jobs.enqueue(conn, PROMOTE, subject, lock=f"dense_index\x1f{key}", dedupe=key)


async def queue_drop(conn: Connection, jobs: Jobs, collection_id: str, space: Space | None) -> None:
    """Queues the dropping of a space's index, in the transaction that drops the space. One that
    is being built finds its space gone when it is done."""
    if space is not None and space.index_name:
        await _queue_drop(conn, jobs, collection_id, space.model_id)


async def takes_vectors(conn: Connection, jobs: Jobs, collection_id: str, space: Space) -> bool:
    """Whether the space's first vectors can be inserted: an index that the space has no longer
    takes only vectors of the former dimensions until it is dropped, which this queues."""
    if space.vectors:
        return True
    tenant_id = context.current_caller().tenant_id
    name = dense.index_name(tenant_id, collection_id, space.model_id)
    dimensions = await dense.indexed_dimensions(conn, name)
    if dimensions is not None and not space.index_name:
        await _queue_drop(conn, jobs, collection_id, space.model_id)
    return dimensions in (None, space.dimensions)


async def _queue_drop(conn: Connection, jobs: Jobs, collection_id: str, model_id: str) -> None:
    key = f"{collection_id}\x1f{model_id}"
    subject = {"collection_id": collection_id, "model_id": model_id}
    await jobs.enqueue(conn, DEMOTE, subject, lock=f"dense_index\x1f{key}", dedupe=key)


@dataclass(frozen=True)
class Promoter:
    """Handler of index jobs. `owner_dsn` None: this process may not build indexes."""

    db: Database
    owner_dsn: SecretStr | None
    memory_mb: int

    async def run(self, job: JobRun) -> dict[str, str]:
        """Builds the index, finds the search width that keeps recall, puts it into use."""
        collection_id, model_id = job.subject["collection_id"], job.subject["model_id"]
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        space = collection.space(model_id) if collection else None
        if space is None or not 0 < space.dimensions <= MAX_DIMENSIONS:
            return {"index": ""}
        # Queued while another one was being built, or tried: there is nothing left to do.
        if space.index_name and await self._stands(space.index_name):
            return {"index": space.index_name}
        if not space.index_name and not space.wants_index(0):
            return {"index": ""}
        name, width, recall = "", None, 0.0
        for graph in _GRAPHS:
            name = await self._build(job.tenant_id, collection_id, space, graph)
            width, recall = await self._check(
                job.tenant_id, collection_id, model_id, space.dimensions
            )
            if width is not None:
                break
            logs.get(__name__).warning("index_recall_low", model=model_id, recall=recall, m=graph.m)
        async with self.db.tenant() as conn:
            there = await collections.set_space_index(
                conn, collection_id, space, name if width else None, width
            )
        if width is None or not there:
            await self._drop(name)
            return {"index": "", "recall": f"{recall:.4f}"}
        return {"index": name, "ef_search": str(width), "recall": f"{recall:.4f}"}

    async def drop(self, job: JobRun) -> dict[str, str]:
        """Drops the index of a space that is gone or has none any more; one that has got one since
        keeps it."""
        collection_id, model_id = job.subject["collection_id"], job.subject["model_id"]
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        space = collection.space(model_id) if collection else None
        if space is not None and space.index_name:
            return {"index": space.index_name}
        await self._drop(dense.index_name(job.tenant_id, collection_id, model_id))
        return {"index": ""}

    async def _build(
        self, tenant_id: str, collection_id: str, space: Space, graph: dense.Graph
    ) -> str:
        async with await self._owner() as owner:
            return await dense.create_index(
                owner,
                tenant_id,
                collection_id,
                space.model_id,
                space.dimensions,
                graph,
                self.memory_mb,
            )

    async def _stands(self, name: str) -> bool:
        async with self.db.tenant() as conn:
            return await dense.index_stands(conn, name)

    async def _drop(self, name: str) -> None:
        async with await self._owner() as owner:
            await dense.drop_index(owner, name)

    async def _owner(self) -> psycopg.AsyncConnection[Any]:
        if self.owner_dsn is None:
            raise Quarantine(
                "FAILED_PRECONDITION",
                "Set NIANLUN_RETRIEVER_MAINTENANCE_DSN for the worker; searches stay exact.",
            )
        return await psycopg.AsyncConnection.connect(
            self.owner_dsn.get_secret_value(), autocommit=True
        )

    async def _check(
        self, tenant_id: str, collection_id: str, model_id: str, dimensions: int
    ) -> tuple[int | None, float]:
        """The smallest width with recall@20 >= 0.99 against exact scans; None if there is none."""
        # One snapshot: what is ingested meanwhile would be missing from one side of the comparison.
        async with self.db.tenant(snapshot=True) as conn:
            probes = await dense.sample(conn, collection_id, model_id, _PROBES)
            truth = [set(await dense.exact(conn, collection_id, model_id, p, _K)) for p in probes]
            recall = 0.0
            for width in _WIDTHS:
                found = [
                    await dense.hnsw(
                        conn, tenant_id, collection_id, model_id, dimensions, p, _K, width
                    )
                    for p in probes
                ]
                shares = [
                    len(want & set(got)) / len(want)
                    for want, got in zip(truth, found, strict=True)
                    if want
                ]
                recall = sum(shares) / len(shares) if shares else 1.0
                if recall >= _RECALL:
                    return width, recall
        return None, recall
