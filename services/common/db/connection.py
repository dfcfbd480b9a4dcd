"""A connection that knows whose transaction it is in, and names the tenant in its statements.

Every statement over rows of tenants says whose rows it is about: ``tenant_id = %(tenant)s``. The
value is that of the transaction, never a caller's, so that a statement and row-level security can
not disagree. It is sent as a parameter: the planner knows it, and a database that spreads tenants
over servers knows which one to ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, Row

TENANT: Final = "%(tenant)s"
"""The tenant of the transaction, in statements with positional and with named parameters."""

_NAME: Final = "tenant"
_MARK: Final = TENANT.encode()
_PLACEHOLDER: Final = re.compile(rb"%(?:%|[sbt]|\(\w+\)[sbt])")


class Connection(psycopg.AsyncConnection[DictRow]):
    """A connection of the pool. ``tenant_id`` is '' outside of a tenant's transaction."""

    tenant_id: str = ""
    used_at: float = 0.0
    """When its last user gave it back, on the monotonic clock."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = TenantCursor
        self.server_cursor_factory = TenantServerCursor


class TenantCursor(psycopg.AsyncCursor[Row]):
    """A cursor that fills ``%(tenant)s`` in."""

    async def execute(
        self,
        query: Any,
        params: Any = None,
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> TenantCursor[Row]:
        """As psycopg's."""
        query, params = _filled(self.connection, query, params)
        await super().execute(query, params, prepare=prepare, binary=binary)
        return self

    async def executemany(
        self, query: Any, params_seq: Iterable[Any], *, returning: bool = False
    ) -> None:
        """As psycopg's."""
        filled = [_filled(self.connection, query, params) for params in params_seq]
        if filled:
            await super().executemany(
                filled[0][0], [params for _, params in filled], returning=returning
            )


class TenantServerCursor(psycopg.AsyncServerCursor[Row]):
    """A cursor of the server's that fills ``%(tenant)s`` in."""

    async def execute(
        self, query: Any, params: Any = None, *, binary: bool | None = None, **options: Any
    ) -> TenantServerCursor[Row]:
        """As psycopg's."""
        query, params = _filled(self.connection, query, params)
        await super().execute(query, params, binary=binary, **options)
        return self


def _filled(conn: psycopg.AsyncConnection[Any], query: Any, params: Any) -> tuple[Any, Any]:
    """The statement and its parameters with the connection's tenant among them."""
    text = query.as_bytes(conn) if isinstance(query, sql.Composable) else query
    if isinstance(text, str):
        text = text.encode()
    if _MARK not in text:
        return query, params
    tenant = getattr(conn, "tenant_id", "")
    if not tenant:
        raise RuntimeError("a statement over rows of a tenant outside of a tenant's transaction")
    if params is None or isinstance(params, Mapping):
        return text, {**(params or {}), _NAME: tenant}
    positional, places = _positional(text)
    values = list(params)
    for place in places:
        values.insert(place, tenant)
    return positional, values


@lru_cache(maxsize=1024)
def _positional(text: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The statement with ``%s`` for the tenant, and which of its parameters these are."""
    marks = [m.group() for m in _PLACEHOLDER.finditer(text) if m.group() != b"%%"]
    places = tuple(place for place, mark in enumerate(marks) if mark == _MARK)
    return text.replace(_MARK, b"%s"), places
