"""I3, I4: the database itself keeps tenants apart, whatever a query forgets.

Every table of every service is found in the catalog, with rows of a real tenant in it.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.db import Database
from tests.support.requests import Ids
from tests.support.stack import Client

SCHEMAS = ("retriever", "memory", "orchestrator")
# Rows in these must exist after everything has been used once, or the test would prove nothing.
FILLED = {
    "memory.turns",
    "memory.jobs",
    "memory.requests",
    "retriever.documents",
    "retriever.chunks",
    "orchestrator.runs",
}


def _tables(database: Database) -> list[tuple[str, sql.Identifier]]:
    with database.connect() as conn:
        rows = conn.execute(
            "SELECT n.nspname AS schema, c.relname AS name FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = ANY(%s) AND c.relkind = 'r' ORDER BY 1, 2",
            (list(SCHEMAS),),
        ).fetchall()
    return [
        (f"{row['schema']}.{row['name']}", sql.Identifier(str(row["schema"]), str(row["name"])))
        for row in rows
    ]


def _count(conn: Any, table: sql.Identifier, tenant: str | None = None) -> int:
    where = sql.SQL(" WHERE tenant_id = {}").format(tenant) if tenant else sql.SQL("")
    row = conn.execute(sql.SQL("SELECT count(*) AS n FROM {}").format(table) + where).fetchone()
    return int(row["n"])


def _as_tenant(conn: Any, tenant: str) -> None:
    conn.execute("SELECT set_config('nianlun.tenant_id', %s, true)", (tenant,))


def _run_as(conn: Any, tenant: str, statement: sql.Composable) -> None:
    with conn.transaction():
        _as_tenant(conn, tenant)
        conn.execute(statement)


@pytest.fixture(scope="module")
def filled(database: Database, planted: tuple[Client, Ids]) -> dict[str, int]:
    """Rows of the planted tenant by table."""
    tenant = planted[0].tenant.tenant_id
    with database.connect() as conn:
        counts = {name: _count(conn, table, tenant) for name, table in _tables(database)}
    assert {name for name in FILLED if not counts[name]} == set()
    return counts


def test_i3_a_forgotten_where_returns_and_changes_nothing(
    database: Database, planted: tuple[Client, Ids], filled: dict[str, int]
) -> None:
    stranger = database.tenant().tenant_id
    for name, table in _tables(database):
        with database.connect(name.split(".")[0]) as conn, conn.transaction():
            _as_tenant(conn, stranger)
            assert _count(conn, table) == 0, name
            for statement in ("UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}"):
                try:
                    with conn.transaction():
                        done = conn.execute(sql.SQL(statement).format(table))
                        assert done.rowcount == 0, f"{statement} {name}"
                except psycopg.errors.InsufficientPrivilege:
                    continue
    owner = planted[0].tenant.tenant_id
    with database.connect() as conn:
        for name, table in _tables(database):
            assert _count(conn, table, owner) >= filled[name], name


def test_i3_no_row_can_be_written_for_another_tenant(
    database: Database, planted: tuple[Client, Ids], filled: dict[str, int]
) -> None:
    owner = planted[0].tenant.tenant_id
    stranger = database.tenant().tenant_id
    for name, table in _tables(database):
        if not filled[name]:
            continue
        with database.connect(name.split(".")[0]) as conn:
            # A row made for somebody else, and a row handed over to somebody else.
            made = sql.SQL("INSERT INTO {} (tenant_id) VALUES ({})").format(table, owner)
            moved = sql.SQL("UPDATE {} SET tenant_id = {}").format(table, stranger)
            for tenant, statement in ((stranger, made), (owner, moved)):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    _run_as(conn, tenant, statement)


def test_i4_two_tenants_on_one_connection(
    database: Database, planted: tuple[Client, Ids], filled: dict[str, int]
) -> None:
    owner, stranger = planted[0].tenant.tenant_id, database.tenant().tenant_id
    table = sql.Identifier("memory", "turns")
    with database.connect("memory") as conn:
        for _ in range(20):
            with conn.transaction():
                _as_tenant(conn, owner)
                assert _count(conn, table) == filled["memory.turns"]
            assert _count(conn, table) == 0
            with pytest.raises(psycopg.errors.DivisionByZero):
                _run_as(conn, owner, sql.SQL("SELECT 1 / 0"))
            assert _count(conn, table) == 0
            with conn.transaction():
                _as_tenant(conn, stranger)
                assert _count(conn, table) == 0
            with conn.transaction(force_rollback=True):
                _as_tenant(conn, owner)
            assert _count(conn, table) == 0
