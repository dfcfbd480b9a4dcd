"""The connection pool of one process, and the transactions it hands out.

Tenant data is reachable only through ``Database.tenant``: it sets ``nianlun.tenant_id`` for the one
transaction, which row-level security compares with every row, and lets statements name the tenant
(``%(tenant)s``). Driver failures leave this module as
DomainErrors (DATABASE_UNAVAILABLE, DEADLINE_EXCEEDED).
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from services.common import context, deadlines, errors
from services.common.db.connection import Connection
from services.common.migrations import versions
from services.common.settings import DatabaseSettings
from services.common.telemetry import PoolState

_Start = Callable[[Connection], Awaitable[object]]

_RECONNECT_S = 5.0
"""How long the pool insists on one reconnection: beyond it the next caller starts a fresh attempt,
so that recovery after an outage never waits for a long back-off."""
_FRESH_S = 0.25
"""So long after its last use a connection is taken to be alive."""
_LEFT_BY_SERVER: Final = (
    psycopg.errors.ReadOnlySqlTransaction,  # after a failover: this server is the standby now
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)
"""What says that a connection is of no use any more and is no OperationalError to the driver."""
_DOUBT_S = 2.0
_DOUBTED_PATIENCE_S = 0.25


@dataclass
class _Hold:
    """Marks a connection as held by a task and everything it started meanwhile."""

    active: bool = True


class Database:
    """A pool of connections of one role. ``schema`` is the service's own schema, if it has one."""

    def __init__(self, settings: DatabaseSettings, *, schema: str | None = None) -> None:
        self._settings = settings
        self.schema = schema
        self._held: contextvars.ContextVar[_Hold | None] = contextvars.ContextVar(
            "nianlun_connection", default=None
        )
        self._in_use = 0
        self._doubted_until = 0.0
        self._pool = self._make_pool()

    def _make_pool(self) -> AsyncConnectionPool[Connection]:
        settings = self._settings
        # Transactions set a limit of their own; statements outside of one have this.
        limit_ms = str(max(1, int(settings.statement_timeout_s * 1000)))
        return AsyncConnectionPool(
            conninfo=conninfo(settings, statement_timeout=limit_ms),
            connection_class=Connection,
            kwargs=_connection_arguments(settings),
            min_size=min(settings.pool_min, settings.pool_max),
            max_size=settings.pool_max,
            timeout=settings.pool_timeout_s,
            reconnect_timeout=_RECONNECT_S,
            open=False,
            configure=_configure,
            name=settings.application_name,
        )

    async def open(self, timeout_s: float = 10.0) -> None:
        """Open the pool and wait for its first connection; StartupError when that fails."""
        try:
            await self._pool.open(wait=True, timeout=timeout_s)
        except PoolTimeout:
            await self._pool.close()
            raise errors.StartupError(
                f"The database of {self._settings.application_name} cannot be reached within"
                f" {timeout_s:g} s at {_where(self._settings)}. Start PostgreSQL, run the migrate"
                " step, and check the DSN (host, port, user, password)."
            ) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    def pool_state(self) -> PoolState:
        """How busy the pool is, for metrics."""
        stats = self._pool.get_stats()
        size, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        return PoolState(
            idle=idle,
            used=max(size - idle, 0),
            most=stats.get("pool_max", 0),
            waiting=stats.get("requests_waiting", 0),
        )

    @asynccontextmanager
    async def tenant(
        self, tenant_id: str | None = None, *, snapshot: bool = False
    ) -> AsyncIterator[Connection]:
        """One transaction that sees and writes the rows of one tenant only.

        ``tenant_id`` None means the tenant of the current caller. With ``snapshot`` all statements
        see the same state (REPEATABLE READ). Commits at the end of the block, rolls back on any
        exception. Never await a model or another service inside.
        """
        tenant = context.current_caller().tenant_id if tenant_id is None else tenant_id
        if not tenant:
            raise ValueError("tenant_id must not be empty")
        async with self._transaction(tenant, snapshot) as conn:
            yield conn

    @asynccontextmanager
    async def untenanted(self) -> AsyncIterator[Connection]:
        """One transaction without a tenant: row-level security hides every tenant's rows."""
        async with self._transaction("") as conn:
            yield conn

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode, without a tenant; for single statements."""
        with _translated():
            async with self._acquired(_check) as conn:
                yield conn

    async def ready(self) -> str | None:
        """None when the database answers and the schema is current, else the reason it is not."""
        try:
            async with self.plain() as conn:
                if self.schema is None:
                    await conn.execute("SELECT 1")
                    return None
                applied = await versions.applied(conn, self.schema)
        except errors.DomainError as error:
            return f"database: {error.reason}"
        expected = versions.expected(self.schema)
        if applied < expected:
            return f"schema {self.schema} is at version {applied}, {expected} is needed: migrate"
        return None

    @property
    def citus(self) -> bool:
        """Whether the database is the coordinator of a Citus cluster."""
        return self._settings.citus

    @asynccontextmanager
    async def _transaction(self, tenant: str, snapshot: bool = False) -> AsyncIterator[Connection]:
        """A transaction of a tenant ('': of none) with the statement timeout. It begins and is set
        up in one round trip: a search has several, each of a few milliseconds."""

        async def start(conn: Connection) -> None:
            # Only now: the wait for the connection counts against the deadline too.
            statements = _begin(tenant, self._statement_timeout_ms(), snapshot)
            # Citus passes on to its workers the text of the message that a SET LOCAL came in.
            messages = statements if self.citus else [sql.SQL("; ").join(statements)]
            for message in messages:
                # Two statements at once cannot be prepared.
                await conn.execute(message, prepare=False)
            conn.tenant_id = tenant

        with _translated():
            async with self._acquired(start) as conn:
                try:
                    yield conn
                except BaseException:
                    await _roll_back(conn)
                    raise
                await conn.commit()

    @asynccontextmanager
    async def _acquired(self, start: _Start) -> AsyncIterator[Connection]:
        held = self._held.get()
        if held is not None and held.active:
            raise RuntimeError(
                "a second connection was asked for while one is held: with a full pool that is a"
                " deadlock; pass the first connection along instead"
            )
        conn = await self._living(start)
        self._doubted_until = 0.0
        hold = _Hold()
        token = self._held.set(hold)
        self._in_use += 1
        try:
            yield conn
        except _LEFT_BY_SERVER:
            # The pool makes a new one in its place, which may lead to another server.
            await conn.close()
            raise
        finally:
            self._in_use -= 1
            conn.tenant_id = ""
            conn.used_at = time.monotonic()
            hold.active = False
            self._held.reset(token)
            await self._pool.putconn(conn)

    async def _living(self, start: _Start) -> Connection:
        """A connection on which `start` worked. One that the server has closed meanwhile, as all
        are after its restart, fails there without having done anything, and is replaced."""
        tries = 0
        while True:
            conn = await self._taken()
            try:
                await start(conn)
            except BaseException as error:
                dead = conn.closed and isinstance(error, psycopg.Error)
                if not dead:
                    await _roll_back(conn)
                await self._pool.putconn(conn)
                tries += 1
                if dead and tries <= self._settings.pool_max:
                    continue
                raise
            return conn

    async def _taken(self) -> Connection:
        try:
            return await self._pool.getconn(timeout=self._patience())
        except PoolTimeout:
            if self._in_use < self._settings.pool_max:
                # Not busy but unreachable: let the next callers know soon, rather than each of
                # them waiting out its deadline.
                self._doubted_until = time.monotonic() + _DOUBT_S
            raise

    def _patience(self) -> float:
        """Seconds to wait for a connection: at most half of what the call has left, so that the
        caller still hears that the database is away."""
        patience = self._settings.pool_timeout_s
        if time.monotonic() < self._doubted_until:
            patience = min(patience, _DOUBTED_PATIENCE_S)
        deadline = context.current_deadline()
        if deadline is not None:
            patience = min(patience, deadline.remaining() / 2)
        return max(patience, 0.01)

    def _statement_timeout_ms(self) -> str:
        seconds = deadlines.timeout(self._settings.statement_timeout_s)
        return str(max(1, int(seconds * 1000)))


def conninfo(settings: DatabaseSettings, **options: str) -> str:
    """The connection string with the server options every connection of ours needs.

    Plans are always made for the values at hand: a generic plan cannot use partial indexes and was
    measured at 14 times the cost. ``options`` are further server settings.
    """
    dsn = settings.dsn.get_secret_value()
    given = str(conninfo_to_dict(dsn).get("options") or "")
    wanted = {"plan_cache_mode": "force_custom_plan", **options}
    merged = " ".join([given, *(f"-c {key}={value}" for key, value in wanted.items())]).strip()
    return make_conninfo(dsn, options=merged, application_name=settings.application_name)


def _connection_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = {"autocommit": True, "row_factory": dict_row}
    if not settings.prepared_statements:
        arguments["prepare_threshold"] = None
    return arguments


def _begin(tenant: str, timeout_ms: str, snapshot: bool) -> list[sql.Composed]:
    """Opens a transaction with its settings. SET, not set_config(): Citus passes on the former."""
    statements = [sql.Composed([sql.SQL("BEGIN")])]
    if snapshot:
        isolation = sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        statements.append(sql.Composed([isolation]))
    if tenant:
        setting = sql.SQL("SET LOCAL nianlun.tenant_id = {}")
        statements.append(setting.format(sql.Literal(tenant)))
    setting = sql.SQL("SET LOCAL statement_timeout = {}")
    return [*statements, setting.format(sql.Literal(timeout_ms))]


async def _check(conn: Connection) -> None:
    """Raises where the server has closed the connection. One that was used just now is not asked:
    for small statements that question is half of the work."""
    if time.monotonic() - conn.used_at > _FRESH_S:
        await AsyncConnectionPool.check_connection(conn)


async def _roll_back(conn: Connection) -> None:
    """Ends a failed transaction. What failed matters more than whether this works: the pool throws
    a connection away that is still inside a transaction or broken."""
    with suppress(psycopg.Error):
        await conn.rollback()


async def _configure(conn: Connection) -> None:
    # Connections are in autocommit mode, so this leaves them idle, as the pool demands.
    await register_vector_async(conn)


@contextmanager
def _translated() -> Iterator[None]:
    """Driver failures as DomainErrors; programming errors stay what they are."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise errors.DomainError(
            "DEADLINE_EXCEEDED", metadata={"step": "database"}, detail=str(error)
        ) from error
    except (PoolTimeout, PoolClosed, TooManyRequests) as error:
        raise errors.database_unavailable(str(error)) from error
    # The classes 08 (connection), 53 (resources) and 57 (intervention) are OperationalErrors.
    except (psycopg.OperationalError, psycopg.InterfaceError, *_LEFT_BY_SERVER) as error:
        raise errors.database_unavailable(str(error)) from error


def _where(settings: DatabaseSettings) -> str:
    parts = conninfo_to_dict(settings.dsn.get_secret_value())
    return f"{parts.get('host', 'localhost')}:{parts.get('port', '5432')}/{parts.get('dbname', '')}"
