"""The dense leg's SQL: exact scans within a scope, and the HNSW index of one space."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pgvector import HalfVector
from psycopg import AsyncConnection, sql

from services.common.db import Connection
from services.retriever.domain import Vector
from services.retriever.store.sqltools import TENANT, one, rows

MAX_EF_SEARCH = 1_000


async def exact(
    conn: Connection,
    collection_id: str,
    model_id: str,
    query: Vector,
    k: int,
    among: Sequence[int] | None = None,
) -> dict[int, float]:
    """The `k` items with the greatest inner product, of all or `among` these: item -> score."""
    narrowed = "" if among is None else "AND item = ANY(%s)"
    params: list[object] = [collection_id, model_id]
    if among is not None:
        params.append(list(among))
    vector = HalfVector(query)
    # The bare column: an index on embedding::halfvec(n) cannot serve it, so this stays exact.
    found = await rows(
        conn,
        f"""SELECT item, -(embedding <#> %s) AS score FROM retriever.vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s {narrowed}
            ORDER BY embedding <#> %s LIMIT %s""",
        (vector, *params, vector, k),
    )
    return {row["item"]: row["score"] for row in found}


async def exact_by_passage(
    conn: Connection,
    collection_id: str,
    model_id: str,
    query: Vector,
    k: int,
    among: Sequence[int] | None = None,
) -> dict[int, float]:
    """As `exact`, but one item for each distinct passage: for scopes full of equal texts."""
    narrowed = "" if among is None else "AND v.item = ANY(%s)"
    params: list[object] = [collection_id, model_id]
    if among is not None:
        params.append(list(among))
    vector = HalfVector(query)
    found = await rows(
        conn,
        f"""SELECT item, score FROM (
                SELECT DISTINCT ON (i.passage_hash) v.item, -(v.embedding <#> %s) AS score
                FROM retriever.vectors AS v
                JOIN retriever.items AS i ON i.tenant_id = {TENANT}
                 AND i.collection_id = v.collection_id AND i.item = v.item
                WHERE v.tenant_id = {TENANT} AND v.collection_id = %s AND v.model_id = %s {narrowed}
                ORDER BY i.passage_hash, v.embedding <#> %s) AS best
            ORDER BY score DESC LIMIT %s""",
        (vector, *params, vector, k),
    )
    return {row["item"]: row["score"] for row in found}


async def scores_of(
    conn: Connection, collection_id: str, model_id: str, query: Vector, items: Sequence[int]
) -> dict[int, float]:
    """Inner products of these items with the query: item -> score."""
    found = await rows(
        conn,
        f"""SELECT item, -(embedding <#> %s) AS score FROM retriever.vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND item = ANY(%s)""",
        (HalfVector(query), collection_id, model_id, list(items)),
    )
    return {row["item"]: row["score"] for row in found}


def knn_statement(
    tenant_id: str, collection_id: str, model_id: str, dimensions: int
) -> sql.Composed:
    """The KNN query that a space's HNSW index can serve; parameters: vector, vector, k.

    The scope stands in it as literals, since a partial index is only used when the planner can
    prove its predicate; KNN alone in the CTE, since joins beside it make the planner sort instead.
    """
    distance = sql.SQL("(embedding::halfvec({})) <#> %s").format(sql.Literal(dimensions))
    return sql.SQL(
        """WITH knn AS MATERIALIZED (
            SELECT item, {distance} AS distance FROM retriever.vectors
            WHERE tenant_id = {tenant} AND collection_id = {collection} AND model_id = {model}
            ORDER BY {distance} LIMIT %s)
        SELECT item, -distance AS score FROM knn"""
    ).format(
        distance=distance,
        tenant=sql.Literal(tenant_id),
        collection=sql.Literal(collection_id),
        model=sql.Literal(model_id),
    )


async def hnsw(
    conn: Connection,
    tenant_id: str,
    collection_id: str,
    model_id: str,
    dimensions: int,
    query: Vector,
    k: int,
    ef_search: int,
) -> dict[int, float]:
    """The `k` nearest items by the space's HNSW index: item -> score."""
    await set_width(conn, max(ef_search, k + k // 4))
    vector = HalfVector(query)
    statement = knn_statement(tenant_id, collection_id, model_id, dimensions)
    cursor = await conn.execute(statement, (vector, vector, k))
    return {row["item"]: row["score"] for row in await cursor.fetchall()}


async def set_width(conn: Connection, ef_search: int) -> None:
    """How wide HNSW searches in this transaction; more than 1,000 is not possible."""
    width = sql.Literal(min(ef_search, MAX_EF_SEARCH))
    await conn.execute(sql.SQL("SET LOCAL hnsw.ef_search = {}").format(width))


async def sample(conn: Connection, collection_id: str, model_id: str, count: int) -> list[Vector]:
    """Some vectors of a space, spread over its items."""
    found = await rows(
        conn,
        f"""SELECT embedding FROM retriever.vectors
            WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s
              AND item %% greatest(1, (SELECT vectors / %s FROM retriever.spaces
                    WHERE tenant_id = {TENANT} AND collection_id = %s AND model_id = %s)) = 0
            LIMIT %s""",
        (collection_id, model_id, count, collection_id, model_id, count),
    )
    return [row["embedding"].to_numpy() for row in found]


def index_name(tenant_id: str, collection_id: str, model_id: str) -> str:
    """The name of a space's HNSW index, the same every time."""
    scope = f"{tenant_id}\x1f{collection_id}\x1f{model_id}"
    return "vectors_hnsw_" + hashlib.sha256(scope.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Graph:
    """How close-meshed an HNSW graph is: links a node, and candidates looked at for them."""

    m: int
    ef_construction: int


async def create_index(
    owner: AsyncConnection[object],
    tenant_id: str,
    collection_id: str,
    model_id: str,
    dimensions: int,
    graph: Graph,
    memory_mb: int,
) -> str:
    """Builds the partial HNSW index of a space without blocking writers; returns its name.

    `owner` is an autocommit connection of the table's owner, nianlun_maintenance: no service
    role may do this. An invalid index that a killed build left behind is replaced.
    """
    name = index_name(tenant_id, collection_id, model_id)
    await drop_index(owner, name)
    await owner.execute(
        sql.SQL("SET maintenance_work_mem = {}").format(sql.Literal(f"{memory_mb}MB"))
    )
    await owner.execute(
        sql.SQL(
            """CREATE INDEX CONCURRENTLY {name} ON retriever.vectors
               USING hnsw ((embedding::halfvec({dimensions})) halfvec_ip_ops)
               WITH (m = {m}, ef_construction = {ef_construction})
               WHERE tenant_id = {tenant} AND collection_id = {collection} AND model_id = {model}"""
        ).format(
            name=sql.Identifier(name),
            dimensions=sql.Literal(dimensions),
            m=sql.Literal(graph.m),
            ef_construction=sql.Literal(graph.ef_construction),
            tenant=sql.Literal(tenant_id),
            collection=sql.Literal(collection_id),
            model=sql.Literal(model_id),
        )
    )
    return name


async def index_stands(conn: Connection, name: str) -> bool:
    """Whether an HNSW index is there and usable: a build that was killed leaves one that is not."""
    row = await one(
        conn,
        """SELECT i.indisvalid AS valid FROM pg_catalog.pg_index AS i
           WHERE i.indexrelid = to_regclass(%s)""",
        (f"retriever.{name}",),
    )
    return bool(row and row["valid"])


async def indexed_dimensions(conn: Connection, name: str) -> int | None:
    """The dimensions that an HNSW index takes, whether it is usable or not; None without one."""
    row = await one(
        conn,
        """SELECT a.atttypmod AS dimensions FROM pg_catalog.pg_attribute AS a
           WHERE a.attrelid = to_regclass(%s) AND a.attnum = 1""",
        (f"retriever.{name}",),
    )
    return int(row["dimensions"]) if row else None


async def drop_index(owner: AsyncConnection[object], name: str) -> None:
    """Drops an HNSW index if it is there, without blocking readers."""
    await owner.execute(
        sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier("retriever", name))
    )
