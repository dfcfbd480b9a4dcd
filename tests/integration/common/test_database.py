"""The pool, its transactions, and isolation by the database itself."""

import asyncio
import random

import psycopg
import pytest
from psycopg import sql

from services.common import context, errors
from services.common.context import CallContext
from services.common.db import Database
from services.common.db.connection import TenantCursor
from services.common.deadlines import Deadline
from services.common.settings import DatabaseSettings
from tests.integration.common.conftest import settings_of


async def _ids(conn) -> set[str]:
    cursor = await conn.execute("SELECT ring_id FROM memory.rings")
    return {row["ring_id"] for row in await cursor.fetchall()}


async def _add(db: Database, tenant: str, ring: str) -> None:
    async with db.tenant(tenant) as conn:
        await conn.execute(
            "INSERT INTO memory.rings (tenant_id, ring_id) VALUES (%s, %s)", (tenant, ring)
        )


async def test_i03_without_a_tenant_and_without_a_where_there_are_no_foreign_rows(
    chassis_db, memory_db: Database
):
    await _add(memory_db, "i3-a", "ring of a")
    await _add(memory_db, "i3-b", "ring of b")
    with chassis_db.connect("memory") as raw:
        assert raw.execute("SELECT * FROM memory.rings").fetchall() == []
        raw.execute("SET nianlun.tenant_id = ''")
        assert raw.execute("SELECT * FROM memory.rings").fetchall() == []
        raw.execute("SET nianlun.tenant_id = 'i3-a'")
        rows = raw.execute("SELECT tenant_id, ring_id FROM memory.rings").fetchall()
        assert rows == [{"tenant_id": "i3-a", "ring_id": "ring of a"}]
        assert raw.execute("DELETE FROM memory.rings WHERE ring_id = 'ring of b'").rowcount == 0
        assert raw.execute("UPDATE memory.rings SET body = 'x'").rowcount == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("INSERT INTO memory.rings VALUES ('i3-b', 'planted', '')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("UPDATE memory.rings SET tenant_id = 'i3-b'")


async def test_i03_force_binds_the_owner_too(chassis_db):
    with chassis_db.connect() as conn:
        row = conn.execute(
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class"
            " WHERE oid = 'memory.rings'::regclass"
        ).fetchone()
    assert row == {"relrowsecurity": True, "relforcerowsecurity": True}


async def test_i04_two_tenants_on_one_connection_with_errors_between(chassis_db):
    db = Database(settings_of(chassis_db, pool_min=1, pool_max=1))
    await db.open()
    dice = random.Random(4)
    try:
        for tenant in ("i4-a", "i4-b"):
            await _add(db, tenant, f"of {tenant}")

        async def visit(tenant: str) -> None:
            how = dice.choice(["read", "sql error", "rollback", "cancel"])
            try:
                async with db.tenant(tenant) as conn:
                    assert await _ids(conn) == {f"of {tenant}"}
                    if how == "sql error":
                        await conn.execute("SELECT 1/0")
                    if how == "rollback":
                        await conn.execute("DELETE FROM memory.rings")
                        raise KeyError(how)
                    if how == "cancel":
                        task = asyncio.current_task()
                        assert task is not None
                        task.cancel()
                        await conn.execute("SELECT pg_sleep(1)")
            except (psycopg.errors.DivisionByZero, KeyError, asyncio.CancelledError):
                pass

        for _ in range(10):
            await asyncio.gather(*(asyncio.create_task(visit(f"i4-{t}")) for t in "abab"))
        async with db.untenanted() as conn:
            assert await _ids(conn) == set()
        for tenant in ("i4-a", "i4-b"):
            async with db.tenant(tenant) as conn:
                assert await _ids(conn) == {f"of {tenant}"}
    finally:
        await db.close()


async def test_a_second_connection_in_one_task_is_refused(memory_db: Database):
    async with memory_db.tenant("t"):
        with pytest.raises(RuntimeError, match="second connection"):
            async with memory_db.tenant("t"):
                pass

        async def child() -> None:
            async with memory_db.untenanted():
                pass

        with pytest.raises(RuntimeError, match="second connection"):
            await asyncio.create_task(child())
        later = asyncio.create_task(asyncio.sleep(0.05))
    await later
    async with memory_db.tenant("t"):
        pass


async def test_a_background_task_started_under_a_connection_may_use_its_own_later(
    memory_db: Database,
):
    released = asyncio.Event()

    async def later() -> int:
        await released.wait()
        async with memory_db.untenanted() as conn:
            row = await (await conn.execute("SELECT 1 AS one")).fetchone()
            return row["one"]

    async with memory_db.tenant("t"):
        task = asyncio.create_task(later())
    released.set()
    assert await task == 1


async def test_g01_statement_timeout_follows_the_deadline(memory_db: Database):
    call = CallContext("rpc", "r", deadline=Deadline.after(1.0))
    with context.bound(call):
        async with memory_db.tenant("t") as conn:
            cursor = await conn.execute(
                "SELECT setting::int AS ms FROM pg_settings WHERE name = 'statement_timeout'"
            )
            row = await cursor.fetchone()
        assert 0 < row["ms"] <= 1_000
        with pytest.raises(errors.DomainError, match="DEADLINE_EXCEEDED"):
            async with memory_db.tenant("t") as conn:
                await conn.execute("SELECT pg_sleep(60)")


async def test_a_statement_outside_of_a_transaction_ends_too(chassis_db):
    db = Database(settings_of(chassis_db, statement_timeout_s=0.2))
    await db.open()
    try:
        with pytest.raises(errors.DomainError, match="DEADLINE_EXCEEDED"):
            async with db.plain() as conn:
                await conn.execute("SELECT pg_sleep(60)")
        async with db.tenant("t") as conn:
            row = await (await conn.execute("SHOW statement_timeout")).fetchone()
        assert row == {"statement_timeout": "200ms"}
    finally:
        await db.close()


async def test_g01_the_wait_for_a_connection_counts_against_the_deadline(chassis_db):
    db = Database(settings_of(chassis_db, pool_min=1, pool_max=1, pool_timeout_s=30.0))
    await db.open()
    held = asyncio.Event()

    async def hold() -> None:
        async with db.untenanted():
            held.set()
            await asyncio.sleep(2.0)

    holder = asyncio.create_task(hold())
    await held.wait()
    try:
        with context.bound(CallContext("rpc", "r", deadline=Deadline.after(20.0))):
            async with db.tenant("t") as conn:
                cursor = await conn.execute(
                    "SELECT setting::int AS ms FROM pg_settings WHERE name = 'statement_timeout'"
                )
                row = await cursor.fetchone()
        assert row["ms"] <= 18_000
    finally:
        await holder
        await db.close()


async def test_plans_are_made_for_the_values_at_hand(memory_db: Database):
    async with memory_db.untenanted() as conn:
        row = await (await conn.execute("SHOW plan_cache_mode")).fetchone()
    assert row == {"plan_cache_mode": "force_custom_plan"}


async def test_a_full_pool_is_unavailable_with_a_hint_when_to_retry(chassis_db):
    db = Database(settings_of(chassis_db, pool_min=1, pool_max=1, pool_timeout_s=0.1))
    await db.open()
    held, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with db.untenanted():
            held.set()
            await release.wait()

    holder = asyncio.create_task(hold())
    await held.wait()
    with pytest.raises(errors.DomainError) as caught:
        async with db.untenanted():
            pass
    release.set()
    await holder
    await db.close()
    assert caught.value.reason == "DATABASE_UNAVAILABLE"
    assert caught.value.retry_after_s is not None


async def test_a_dropped_connection_is_replaced(chassis_db, memory_db: Database):
    async with memory_db.untenanted() as conn:
        row = await (await conn.execute("SELECT pg_backend_pid() AS pid")).fetchone()
    with chassis_db.connect() as owner:
        owner.execute("SELECT pg_terminate_backend(%s)", (row["pid"],))
    async with memory_db.untenanted() as conn:
        await conn.execute("SELECT 1")
    with pytest.raises(errors.DomainError, match="DATABASE_UNAVAILABLE"):
        async with memory_db.untenanted() as conn:
            await conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def test_a_missing_database_is_a_readable_start_up_error():
    dsn = "postgresql://u:hunter2@127.0.0.1:1/none"
    db = Database(DatabaseSettings(dsn=_secret(dsn), application_name="nianlun-x"))
    with pytest.raises(errors.StartupError, match=r"127\.0\.0\.1:1/none") as caught:
        await db.open(timeout_s=0.3)
    assert "hunter2" not in str(caught.value)


async def test_vectors_travel_as_arrays(memory_db: Database):
    from pgvector import HalfVector

    async with memory_db.untenanted() as conn:
        cursor = await conn.execute("SELECT %s::halfvec AS v", (HalfVector([1, 2, 3]),))
        row = await cursor.fetchone()
    assert row["v"].to_list() == [1.0, 2.0, 3.0]


def _secret(text: str):
    from pydantic import SecretStr

    return SecretStr(text)


@pytest.mark.parametrize("citus", [False, True])
async def test_a_transaction_is_set_up_alike_in_one_message_and_in_several(
    chassis_db, citus: bool, monkeypatch: pytest.MonkeyPatch
):
    sent: list[str] = []
    execute = TenantCursor.execute

    async def recorded(cursor, query, params=None, **options):
        sent.append(query if isinstance(query, str) else query.as_string())
        return await execute(cursor, query, params, **options)

    monkeypatch.setattr(TenantCursor, "execute", recorded)
    db = Database(settings_of(chassis_db, citus=citus, statement_timeout_s=7))
    await db.open()
    try:
        sent.clear()
        async with db.tenant("o'hara \\ 50%; x", snapshot=True) as conn:
            cursor = await conn.execute(
                "SELECT current_setting('nianlun.tenant_id') AS tenant, conn.* FROM"
                " (SELECT current_setting('statement_timeout') AS timeout,"
                " current_setting('transaction_isolation') AS isolation) AS conn"
            )
            row = await cursor.fetchone()
        async with db.tenant("other") as conn:
            cursor = await conn.execute("SELECT current_setting('transaction_isolation') AS level")
            assert await cursor.fetchone() == {"level": "read committed"}
    finally:
        await db.close()
    assert row == {"tenant": "o'hara \\ 50%; x", "timeout": "7s", "isolation": "repeatable read"}
    settings = [message for message in sent if "SET LOCAL" in message]
    assert len(settings) == (4 if citus else 2)
    assert all(message.startswith("SET" if citus else "BEGIN; SET") for message in settings)


async def test_a_statement_names_the_tenant_of_its_transaction(memory_db: Database):
    values = "INSERT INTO memory.rings (ring_id, tenant_id, body)"
    async with memory_db.tenant("named") as conn:
        await conn.execute(f"{values} VALUES (%s, %(tenant)s, '100%%' || %s)", ("one", "!"))
        await conn.execute(f"{values} VALUES (%(r)s, %(tenant)s, %(tenant)s)", {"r": "two"})
        async with conn.cursor() as cursor:
            await cursor.executemany(
                f"{values} VALUES (%s, %(tenant)s, %s)", [("three", "3"), ("four", "4")]
            )
            await cursor.executemany(f"{values} VALUES (%s, %(tenant)s, '')", [])
        async with conn.pipeline():
            counted = await conn.execute(
                sql.SQL("SELECT count(*) AS n FROM {} WHERE tenant_id = %(tenant)s").format(
                    sql.Identifier("memory", "rings")
                )
            )
        assert await counted.fetchone() == {"n": 4}
        async with conn.cursor("by_the_server") as served:
            await served.execute(
                b"SELECT ring_id, body FROM memory.rings WHERE ring_id <> %s"
                b" AND tenant_id = %(tenant)s ORDER BY ring_id",
                ("four",),
            )
            found = [(row["ring_id"], row["body"]) for row in await served.fetchall()]
    assert found == [("one", "100%!"), ("three", "3"), ("two", "named")]


async def test_a_statement_about_a_tenant_outside_of_its_transaction_is_a_fault(
    memory_db: Database,
):
    statement = "SELECT 1 FROM memory.rings WHERE tenant_id = %(tenant)s"
    async with memory_db.tenant("once") as conn:
        await conn.execute(statement)
    for without in (memory_db.untenanted, memory_db.plain):
        async with without() as conn:
            with pytest.raises(RuntimeError, match="outside of a tenant's transaction"):
                await conn.execute(statement)
