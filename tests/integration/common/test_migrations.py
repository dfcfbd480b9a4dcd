"""The migrate step."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from services.common.db import Database
from services.common.errors import StartupError
from services.common.migrations import versions
from services.common.migrations.runner import ROLES, migrate, role_dsn
from tests.integration.common.conftest import settings_of


def test_g05_four_migrators_at_once(databases):
    database = databases.empty()
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: migrate(database.owner_dsn), range(4)))
    worked = [report for report in reports if report.applied]
    assert len(worked) == 1
    assert "auth/0001_auth" in worked[0].applied
    assert migrate(database.owner_dsn).applied == ()


def test_an_edited_step_is_refused(databases):
    database = databases.new()
    with database.connect() as conn:
        conn.execute("UPDATE migrations.applied SET checksum = 'x' WHERE schema_name = 'auth'")
    with pytest.raises(StartupError, match="auth/0001_auth was edited"):
        migrate(database.owner_dsn)


def test_an_unreachable_database_is_a_readable_error():
    with pytest.raises(StartupError, match="cannot be migrated"):
        migrate("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2")


async def test_a_service_behind_its_schema_is_not_ready(databases):
    database = databases.new()
    pool = Database(settings_of(database), schema="memory")
    await pool.open()
    try:
        if versions.expected("memory"):
            assert await pool.ready() is None
        with database.connect() as conn:
            conn.execute("DELETE FROM migrations.applied WHERE schema_name = 'auth'")
            conn.execute("DELETE FROM migrations.applied WHERE schema_name = 'memory'")
        auth = Database(settings_of(database), schema="auth")
        await auth.open()
        reason = await auth.ready()
        await auth.close()
        assert reason is not None
        assert "version 0" in reason
    finally:
        await pool.close()


@pytest.fixture
def extra_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of steps that is migrated last, as schema ``extra``."""
    folders = {**versions.FOLDERS, "extra": tmp_path}
    monkeypatch.setattr(versions, "FOLDERS", folders)
    monkeypatch.setattr("services.common.migrations.runner.FOLDERS", folders)
    return tmp_path


def test_a_failing_step_leaves_nothing_behind(databases, extra_steps: Path):
    (extra_steps / "0001_half.sql").write_text("CREATE TABLE public.half (a int); SELECT 1/0;")
    database = databases.new()
    with pytest.raises(StartupError, match="extra/0001_half failed"):
        migrate(database.owner_dsn)
    with database.connect() as conn:
        assert conn.execute("SELECT to_regclass('public.half') AS t").fetchone() == {"t": None}
    (extra_steps / "0001_half.sql").write_text("CREATE TABLE public.half (a int);")
    assert migrate(database.owner_dsn).applied == ("extra/0001_half",)


def test_a_step_without_a_transaction_builds_indexes_while_others_wait(
    databases, extra_steps: Path
):
    (extra_steps / "0001_table.sql").write_text("CREATE TABLE public.big (a int);")
    (extra_steps / "0002_index.sql").write_text(
        "-- nianlun:no-transaction\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS big_a ON public.big (a);\n"
        "-- a comment; with a semicolon\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS big_b\n  ON public.big ((a + 1));\n"
    )
    database = databases.new()
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(lambda _: migrate(database.owner_dsn), range(3)))
    assert sorted(len(report.applied) for report in reports) == [0, 0, 2]
    with database.connect() as conn:
        rows = conn.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'big'").fetchall()
    assert {row["indexname"] for row in rows} == {"big_a", "big_b"}


def test_roles_are_no_owners_and_never_above_row_level_security(database):
    with database.connect() as conn:
        rows = conn.execute(
            "SELECT rolname, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles"
            " WHERE rolname LIKE 'nianlun\\_%'"
        ).fetchall()
        owned = conn.execute(
            "SELECT DISTINCT r.rolname FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner"
            " WHERE r.rolname LIKE 'nianlun\\_%'"
        ).fetchall()
    assert {row["rolname"] for row in rows} == set(ROLES)
    assert not any(row["rolsuper"] or row["rolbypassrls"] or row["rolcreaterole"] for row in rows)
    assert owned == [{"rolname": "nianlun_maintenance"}]


def test_a_service_role_may_only_verify(database):
    for service in ("embedder", "retriever", "memory", "orchestrator"):
        with database.connect(service) as conn:
            assert conn.execute("SELECT * FROM auth.verify('\\x00')").fetchall() == []
            for forbidden in (
                "SELECT * FROM auth.keys",
                "SELECT * FROM auth.tenants",
                "SELECT auth.protect('migrations.applied')",
                "INSERT INTO migrations.applied VALUES ('memory', 999, 'x', 'x')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(forbidden)


def test_no_service_reads_anothers_schema(database):
    others = {"embedder": "memory", "retriever": "memory", "memory": "retriever"}
    for service, other in others.items():
        with database.connect(service) as conn, pytest.raises(psycopg.Error):
            conn.execute(f"SELECT * FROM {other}.jobs")


def test_role_dsn_changes_user_and_password():
    dsn = role_dsn("postgresql://owner:secret@h:5/db", "nianlun_memory", "it's")
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    assert (parts["user"], parts["password"], parts["host"]) == ("nianlun_memory", "it's", "h")
    assert "secret" not in role_dsn("postgresql://owner:secret@h:5/db", "nianlun_memory")


async def test_migrate_does_not_need_the_loop(databases):
    database = databases.new()
    assert (await asyncio.to_thread(migrate, database.owner_dsn)).applied == ()
