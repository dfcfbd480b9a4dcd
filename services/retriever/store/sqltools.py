"""What the SQL modules share.

``INSERT ... SELECT FROM unnest(...)`` ends with RETURNING or ON CONFLICT: without these Citus sends
the rows as COPY, which PostgreSQL refuses under row-level security.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.common.db import TENANT, Connection

__all__ = ["TENANT", "Row", "many", "one", "rows", "run"]

Row = dict[str, Any]


async def one(conn: Connection, query: str, params: tuple[Any, ...] = ()) -> Row | None:
    """The first row, None without one."""
    cursor = await conn.execute(query.encode(), params)
    return await cursor.fetchone()


async def rows(conn: Connection, query: str, params: tuple[Any, ...] = ()) -> list[Row]:
    """All rows."""
    cursor = await conn.execute(query.encode(), params)
    return await cursor.fetchall()


async def run(conn: Connection, query: str, params: tuple[Any, ...] = ()) -> int:
    """Executes a statement; returns how many rows it touched."""
    cursor = await conn.execute(query.encode(), params)
    return cursor.rowcount


async def many(conn: Connection, query: str, params: Sequence[tuple[Any, ...]]) -> None:
    """Executes a statement once for each tuple, without waiting for each answer."""
    if params:
        async with conn.cursor() as cursor:
            await cursor.executemany(query.encode(), params)
