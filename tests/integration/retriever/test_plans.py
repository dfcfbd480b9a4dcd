"""Every statement of a search finds its rows by an index, as the service's own role plans it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from pydantic import SecretStr

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.common.db import Database as Pool
from services.common.settings import DatabaseSettings
from services.retriever.domain import Condition, Scope
from services.retriever.store import collections, dense, hits, items, lexical
from tests.integration.retriever.conftest import Shelf
from tests.support.db import Database

QUERY = np.full(384, 0.05, np.float32)
WHOLE = Scope("docs")
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Planned(Exception):
    """The plan of the first statement that a function sends."""


class Explaining:
    """A connection that plans what it is given."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def execute(self, query: bytes, params: Any = None) -> None:
        cursor = await self._conn.execute(b"EXPLAIN " + query, params)
        raise Planned("\n".join(str(r["QUERY PLAN"]) for r in await cursor.fetchall()))

    @asynccontextmanager
    async def cursor(self, **_: Any) -> AsyncIterator[Explaining]:
        yield self


def _only(kind: str, op: str, value: object) -> Scope:
    return Scope("docs", conditions=(Condition(kind, op, kind, (value,)),))


STATEMENTS: dict[str, tuple[Callable[[Any], Awaitable[object]], str]] = {
    "collections": (lambda c: collections.get_many(c, ["docs"]), "collections_pkey"),
    "candidates": (lambda c: hits.candidates(c, WHOLE, [1, 2]), "chunks_by_item"),
    "their passages": (lambda c: hits.candidates(c, WHOLE, [1, 2]), "items_pkey"),
    "places": (lambda c: hits.places(c, WHOLE, [1, 2], 20), "chunks_by_item"),
    "documents": (lambda c: hits.items_in(c, Scope("docs", ("d1", "d2"))), "chunks_pkey"),
    "text": (lambda c: hits.items_in(c, _only("text", "eq", "v17")), "metadata_by_text"),
    "texts": (lambda c: hits.items_in(c, _only("text", "in", "v17")), "metadata_by_text"),
    "number": (lambda c: hits.items_in(c, _only("number", "lt", 3)), "metadata_by_number"),
    "time": (lambda c: hits.items_in(c, _only("time", "lt", NOON)), "metadata_by_time"),
    "bool": (lambda c: hits.items_in(c, _only("bool", "eq", True)), "metadata_by_bool"),
    "postings": (lambda c: lexical.snapshot(c, "docs", ["word1"]), "postings_pkey"),
    "dead items": (lambda c: lexical.snapshot(c, "docs", ["word1"]), "dead_items_pkey"),
    "vectors": (lambda c: dense.scores_of(c, "docs", "small", QUERY, [1, 2]), "vectors_pkey"),
    "exact": (lambda c: dense.exact(c, "docs", "small", QUERY, 20, [1, 2]), "vectors_pkey"),
    "token vectors": (
        lambda c: items.token_vectors(c, "docs", "small", [1, 2]),
        "token_vectors_pkey",
    ),
    "neighbours": (lambda c: items.section_chunks(c, "docs", "d1", 0, 3), "chunks_pkey"),
}


def _input(n: int) -> pb.DocumentInput:
    out = pb.DocumentInput(document_id=f"d{n}", text=f"passage {n} about word{n % 7}")
    out.metadata["text"].string_value = f"v{n}"
    out.metadata["number"].int_value = n
    out.metadata["bool"].bool_value = n == 5
    out.metadata["time"].CopyFrom(common_pb2.Value())
    out.metadata["time"].timestamp_value.FromDatetime(datetime(2026, 5, 1 + n % 28, tzinfo=UTC))
    return out


@pytest_asyncio.fixture(loop_scope="session")
async def filled(shelf: Shelf, database: Database) -> AsyncIterator[Any]:
    """A transaction of the service's role over 250 documents, with statistics."""
    await shelf.create()
    await shelf.put([_input(n) for n in range(250)])
    with database.connect() as owner:
        for table in ("chunks", "document_metadata", "vectors", "items", "postings"):
            owner.execute(f"ANALYZE retriever.{table}".encode())
    pool = Pool(DatabaseSettings(dsn=SecretStr(database.role_dsn("retriever"))), schema="retriever")
    await pool.open()
    try:
        async with pool.tenant(shelf.client.tenant.tenant_id) as conn:
            # So few rows are read whole as well: what is asked is whether an index can serve.
            await conn.execute("SET LOCAL enable_seqscan = off")
            yield conn
    finally:
        await pool.close()


async def test_every_statement_of_a_search_has_its_index(filled: Any) -> None:
    without = []
    for name, (statement, index) in STATEMENTS.items():
        with pytest.raises(Planned) as plan:
            await statement(Explaining(filled))
        if index not in str(plan.value) or "Seq Scan" in str(plan.value):
            without.append(f"{name}: no {index} in\n{plan.value}")
    assert not without, "\n\n".join(without)


async def test_an_exact_scan_never_goes_through_an_approximate_index(filled: Any) -> None:
    with pytest.raises(Planned) as plan:
        await dense.exact(Explaining(filled), "docs", "small", QUERY, 20)
    assert "hnsw" not in str(plan.value)
    assert "vectors_pkey" in str(plan.value)
