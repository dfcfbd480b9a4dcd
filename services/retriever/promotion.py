"""Building an HNSW index for a space that has grown beyond exact scans, and checking its recall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from pydantic import SecretStr

from services.common import logs
from services.common.db import Database
from services.common.jobs import JobRun, Quarantine
from services.retriever.domain import MAX_DIMENSIONS
from services.retriever.store import collections, dense

_RECALL: Final = 0.98
_K: Final = 20
_PROBES: Final = 24
_WIDTHS: Final = (64, 100, 200, 400, 800)


@dataclass(frozen=True)
class Promoter:
    """Handler of index jobs. `owner_dsn` None: this process may not build indexes."""

    db: Database
    owner_dsn: SecretStr | None
    memory_mb: int

    async def run(self, job: JobRun) -> dict[str, str]:
        """Builds the index, finds the search width that keeps recall, puts it into use."""
        collection_id, model_id = job.subject["collection_id"], job.subject["model_id"]
        if self.owner_dsn is None:
            raise Quarantine(
                "FAILED_PRECONDITION",
                "Set NIANLUN_RETRIEVER_MAINTENANCE_DSN for the worker; searches stay exact.",
            )
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
        space = collection.space(model_id) if collection else None
        if space is None or not 0 < space.dimensions <= MAX_DIMENSIONS:
            return {"index": ""}
        name = await self._build(job.tenant_id, collection_id, model_id, space.dimensions)
        width, recall = await self._check(job.tenant_id, collection_id, model_id, space.dimensions)
        async with self.db.tenant() as conn:
            await collections.set_space_index(
                conn, collection_id, model_id, name if width else None, width
            )
        if width is None:
            logs.get(__name__).warning("index_recall_low", model=model_id, recall=recall)
            await self._drop(name)
            return {"index": "", "recall": f"{recall:.4f}"}
        return {"index": name, "ef_search": str(width), "recall": f"{recall:.4f}"}

    async def _build(
        self, tenant_id: str, collection_id: str, model_id: str, dimensions: int
    ) -> str:
        async with await self._owner() as owner:
            return await dense.create_index(
                owner, tenant_id, collection_id, model_id, dimensions, self.memory_mb
            )

    async def _drop(self, name: str) -> None:
        async with await self._owner() as owner:
            await dense.drop_index(owner, name)

    async def _owner(self) -> psycopg.AsyncConnection[Any]:
        if self.owner_dsn is None:
            raise Quarantine("FAILED_PRECONDITION", "No maintenance DSN is set.")
        return await psycopg.AsyncConnection.connect(
            self.owner_dsn.get_secret_value(), autocommit=True
        )

    async def _check(
        self, tenant_id: str, collection_id: str, model_id: str, dimensions: int
    ) -> tuple[int | None, float]:
        """The smallest width with recall@20 >= 0.98 against exact scans; None if there is none."""
        async with self.db.tenant() as conn:
            probes = await dense.sample(conn, collection_id, model_id, _PROBES)
            truth = [set(await dense.exact(conn, collection_id, model_id, p, _K)) for p in probes]
        recall = 0.0
        for width in _WIDTHS:
            async with self.db.tenant() as conn:
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
