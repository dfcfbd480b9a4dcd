"""Same request_id, same result: the first answer is stored in the transaction that did the work.

The row is inserted first, so that a parallel duplicate waits on it and then reads the stored
answer; when the first one rolls back, the duplicate does the work itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message
from psycopg import sql

from services.common import errors
from services.common.db import Connection

M = TypeVar("M", bound=Message)

_PURGE_LIMIT = 2_000
_MAX_ID_CHARS = 128
KEEP_HOURS = 48
"""Answers are kept at least this long; the contract promises 24 hours."""


def derived(request_id: str, part: str) -> str:
    """The id of a further write (``part``, a short word) that belongs to a request.

    At most 128 characters. An id that is too long is hashed, never cut: two requests whose ids
    begin alike would become one.
    """
    if len(request_id) + len(part) + 1 > _MAX_ID_CHARS:
        request_id = hashlib.sha256(request_id.encode()).hexdigest()
    return f"{request_id}:{part}"


async def replay_or_run(
    conn: Connection,
    schema: str,
    request: Message,
    response_type: type[M],
    run: Callable[[], Awaitable[M]],
    *,
    subject: str = "",
) -> M:
    """Run ``run`` once per (tenant, request type, request_id) and replay its response afterwards.

    Must be called inside the tenant transaction in which ``run`` writes. ``subject`` names whom
    the stored answer is about (a user_id), so that an erasure can find it. Raises
    REQUEST_ID_REUSED when the id came with a different request before.
    """
    rpc = request.DESCRIPTOR.full_name
    request_id = str(getattr(request, "request_id"))  # noqa: B009 - not on every Message
    digest = fingerprint(request)
    table = sql.Identifier(schema, "requests")
    inserted = await conn.execute(
        sql.SQL(
            "INSERT INTO {} (tenant_id, rpc, request_id, request_hash, subject)"
            " VALUES (%(tenant)s, %s, %s, %s, %s)"
            " ON CONFLICT (tenant_id, rpc, request_id) DO NOTHING"
        ).format(table),
        (rpc, request_id, digest, subject),
    )
    if inserted.rowcount == 0:
        stored = await stored_response(conn, schema, request, response_type)
        if stored is not None:
            return stored
        raise errors.internal("a request row without a response is visible")
    response = await run()
    await conn.execute(
        sql.SQL(
            "UPDATE {} SET response = %s WHERE tenant_id = %(tenant)s"
            " AND rpc = %s AND request_id = %s"
        ).format(table),
        (response.SerializeToString(), rpc, request_id),
    )
    if digest[0] == 0:
        # One request in 256 tidies up after its tenant; no other process may see tenants' rows.
        await purge(conn, schema)
    return response


async def stored_response(
    conn: Connection, schema: str, request: Message, response_type: type[M]
) -> M | None:
    """The stored answer to ``request``, None where there is none; REQUEST_ID_REUSED on a clash."""
    cursor = await conn.execute(
        sql.SQL(
            "SELECT request_hash, response FROM {}"
            " WHERE tenant_id = %(tenant)s"
            " AND rpc = %s AND request_id = %s"
        ).format(sql.Identifier(schema, "requests")),
        (request.DESCRIPTOR.full_name, str(getattr(request, "request_id"))),  # noqa: B009
    )
    row = await cursor.fetchone()
    if row is None or row["response"] is None:
        return None
    if bytes(row["request_hash"]) != fingerprint(request):
        raise errors.request_id_reused()
    return response_type.FromString(bytes(row["response"]))


async def purge(conn: Connection, schema: str, keep_hours: int = KEEP_HOURS) -> int:
    """Remove the current tenant's answers older than ``keep_hours``, some at a time; how many."""
    cursor = await conn.execute(
        sql.SQL(
            "DELETE FROM {table} WHERE tenant_id = %(tenant)s"
            " AND (rpc, request_id) IN (SELECT rpc, request_id FROM {table}"
            " WHERE tenant_id = %(tenant)s"
            " AND create_time < now() - make_interval(hours => %s) ORDER BY create_time LIMIT %s)"
        ).format(table=sql.Identifier(schema, "requests")),
        (keep_hours, _PURGE_LIMIT),
    )
    return cursor.rowcount


def fingerprint(request: Message) -> bytes:
    """SHA-256 of everything but the request_id, the same in every process."""
    body = type(request)()
    body.CopyFrom(request)
    body.ClearField("request_id")
    return hashlib.sha256(body.SerializeToString(deterministic=True)).digest()
