"""Rules that every table of every service obeys, read from the catalog of a migrated database.

Nothing here names a table: one that a later migration forgets to protect fails by itself.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.db import SERVICES, Database

# Schemas that hold tenants' data. The queue schemas hold ids only and belong to procrastinate;
# `auth` belongs to the chassis and no service role reads it.
DATA_SCHEMAS = ("retriever", "memory", "orchestrator")
QUEUES = ("retriever_queue", "memory_queue", "orchestrator_queue")
SETTING = "nianlun.tenant_id"

_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.oid, c.relrowsecurity, c.relforcerowsecurity,
       c.relkind, pg_get_userbyid(c.relowner) AS owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'm', 'f')
ORDER BY 1, 2
"""
_COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
_UNIQUE = """
SELECT i.indexrelid::regclass::text AS name, i.indisprimary,
       (SELECT a.attname FROM pg_attribute a
         WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[0]) AS first
FROM pg_index i WHERE i.indrelid = %s AND i.indisunique
"""
_FOREIGN_KEYS = """
SELECT con.conname,
       (SELECT a.attname FROM pg_attribute a
         WHERE a.attrelid = con.conrelid AND a.attnum = con.conkey[1]) AS first
FROM pg_constraint con WHERE con.conrelid = %s AND con.contype = 'f'
"""
_POLICIES = """
SELECT polname, polcmd, polpermissive, pg_get_expr(polqual, polrelid) AS using,
       pg_get_expr(polwithcheck, polrelid) AS checking
FROM pg_policy WHERE polrelid = %s
"""


@pytest.fixture(scope="module")
def owner(database: Database) -> Any:
    with database.connect() as conn:
        yield conn


@pytest.fixture(scope="module")
def tables(owner: Any) -> list[dict[str, Any]]:
    found = owner.execute(_TABLES, (list(DATA_SCHEMAS),)).fetchall()
    assert {table["schema"] for table in found} == set(DATA_SCHEMAS)
    return found


def _binds(expression: str | None) -> bool:
    return SETTING in (expression or "") and "tenant_id" in (expression or "")


def _violations(tables: list[dict[str, Any]], check: Any) -> list[str]:
    return [
        f"{table['schema']}.{table['name']}: {problem}"
        for table in tables
        for problem in check(table)
    ]


def test_every_table_belongs_to_tenants(owner: Any, tables: list[dict[str, Any]]) -> None:
    def check(table: dict[str, Any]) -> list[str]:
        columns = [row["attname"] for row in owner.execute(_COLUMNS, (table["oid"],))]
        return [] if "tenant_id" in columns else ["has no tenant_id"]

    assert _violations(tables, check) == []


def test_tenant_id_leads_every_primary_key_and_unique_constraint(
    owner: Any, tables: list[dict[str, Any]]
) -> None:
    def check(table: dict[str, Any]) -> list[str]:
        unique = owner.execute(_UNIQUE, (table["oid"],)).fetchall()
        problems = [f"{u['name']} begins with {u['first']}" for u in unique]
        problems = [p for p in problems if not p.endswith("begins with tenant_id")]
        if not any(u["indisprimary"] for u in unique):
            problems.append("has no primary key")
        return problems

    assert _violations(tables, check) == []


def test_tenant_id_leads_every_foreign_key(owner: Any, tables: list[dict[str, Any]]) -> None:
    def check(table: dict[str, Any]) -> list[str]:
        keys = owner.execute(_FOREIGN_KEYS, (table["oid"],)).fetchall()
        return [
            f"{k['conname']} begins with {k['first']}" for k in keys if k["first"] != "tenant_id"
        ]

    assert _violations(tables, check) == []


def test_row_level_security_is_on_and_forced(owner: Any, tables: list[dict[str, Any]]) -> None:
    def check(table: dict[str, Any]) -> list[str]:
        problems = []
        if table["relkind"] not in ("r", "p"):
            problems.append(f"kind {table['relkind']} cannot be protected")
        if not table["relrowsecurity"]:
            problems.append("row level security is not enabled")
        if not table["relforcerowsecurity"]:
            problems.append("row level security is not forced")
        policies = owner.execute(_POLICIES, (table["oid"],)).fetchall()
        if not policies:
            problems.append("has no policy")
        problems.extend(
            f"policy {policy['polname']} does not bind {part} to the tenant"
            for policy in policies
            for part in ("using", "checking")
            if policy["polpermissive"] and not _binds(policy[part])
        )
        return problems

    assert _violations(tables, check) == []


def test_no_view_or_definer_function_walks_around_the_policies(owner: Any) -> None:
    views = owner.execute(
        "SELECT c.oid::regclass::text AS name FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY(%s) AND c.relkind = 'v' "
        "AND NOT coalesce('security_invoker=true' = ANY(c.reloptions), false)",
        (list(DATA_SCHEMAS),),
    ).fetchall()
    assert views == []
    definers = owner.execute(
        "SELECT p.oid::regprocedure::text AS name FROM pg_proc p "
        "JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = ANY(%s) AND p.prosecdef",
        (list(DATA_SCHEMAS),),
    ).fetchall()
    assert definers == []


@pytest.mark.parametrize("service", SERVICES)
def test_service_roles_own_nothing_and_bypass_nothing(owner: Any, service: str) -> None:
    role = f"nianlun_{service}"
    found = owner.execute("SELECT * FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    assert found is not None
    for power in ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb", "rolreplication"):
        assert not found[power], power
    assert found["rolcanlogin"]
    owned = owner.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE pg_get_userbyid(relowner) = %s", (role,)
    ).fetchall()
    assert owned == []
    memberships = owner.execute(
        "SELECT roleid::regrole::text AS of FROM pg_auth_members WHERE member = %s::regrole",
        (role,),
    ).fetchall()
    assert memberships == []


@pytest.mark.parametrize("service", SERVICES)
def test_service_roles_reach_their_own_schema_only(owner: Any, service: str) -> None:
    role, own = f"nianlun_{service}", {service, f"{service}_queue"}
    reachable = owner.execute(
        "SELECT n.nspname || '.' || c.relname AS name, n.nspname AS schema "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'v', 'm') "
        "AND has_schema_privilege(%s, n.oid, 'USAGE') "
        "AND (has_table_privilege(%s, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE') "
        "OR has_any_column_privilege(%s, c.oid, 'SELECT, INSERT, UPDATE'))",
        ([*DATA_SCHEMAS, *QUEUES, "auth"], *[role] * 3),
    ).fetchall()
    assert [row["name"] for row in reachable if row["schema"] not in own] == []
    truncatable = owner.execute(
        "SELECT c.oid::regclass::text AS name FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') "
        "AND has_table_privilege(%s, c.oid, 'TRUNCATE')",
        (list(DATA_SCHEMAS), role),
    ).fetchall()
    assert truncatable == []  # TRUNCATE is not subject to row-level security


@pytest.mark.parametrize("service", SERVICES)
def test_service_roles_may_call_one_function_of_auth(owner: Any, service: str) -> None:
    callable_ = owner.execute(
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'auth' AND has_schema_privilege(%s, n.oid, 'USAGE') "
        "AND has_function_privilege(%s, p.oid, 'EXECUTE')",
        (f"nianlun_{service}", f"nianlun_{service}"),
    ).fetchall()
    assert {row["proname"] for row in callable_} == {"verify"}


@pytest.mark.parametrize("service", SERVICES)
def test_service_roles_cannot_create_or_disable(database: Database, service: str) -> None:
    with database.connect(service) as conn:
        for statement in (
            "CREATE TABLE public.x (a int)",
            f"CREATE TABLE {service}.x (a int)",
            "CREATE SCHEMA x",
            "SELECT * FROM auth.keys",
            "SET SESSION AUTHORIZATION postgres",
        ):
            with pytest.raises(psycopg.Error):
                conn.execute(statement)


def test_i3_no_tenant_no_rows_and_no_writes(
    database: Database, tables: list[dict[str, Any]]
) -> None:
    """Without a tenant every table is empty, for reading and for deleting, WHERE or not."""
    connections = {schema: database.connect(schema) for schema in DATA_SCHEMAS}
    try:
        for table in tables:
            conn, name = connections[table["schema"]], f'{table["schema"]}."{table["name"]}"'
            row = conn.execute(f"SELECT count(*) AS n FROM {name}").fetchone()
            assert row is not None
            assert row["n"] == 0, name
    finally:
        for conn in connections.values():
            conn.close()


def test_the_maintenance_role_owns_the_table_it_indexes_and_sees_no_row(
    fresh_database: Database,
) -> None:
    owner_sql = "SELECT set_config('nianlun.tenant_id', 'a', false)"
    row = "INSERT INTO retriever.vectors VALUES ('a', 'c', 'm', 1, '[1,0]')"
    with fresh_database.connect("retriever") as conn:
        conn.execute(owner_sql)
        conn.execute(row)
    with fresh_database.connect() as conn:
        owned = conn.execute(
            "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'r'"
            " AND relowner = 'nianlun_maintenance'::regrole"
        ).fetchall()
        role = conn.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles"
            " WHERE rolname = 'nianlun_maintenance'"
        ).fetchone()
    assert owned == [{"name": "retriever.vectors"}]
    assert role is not None
    assert not any(role.values())
    with fresh_database.connect("maintenance") as conn:
        conn.execute(
            "CREATE INDEX CONCURRENTLY probe ON retriever.vectors"
            " USING hnsw ((embedding::halfvec(2)) halfvec_ip_ops)"
        )
        conn.execute("DROP INDEX CONCURRENTLY retriever.probe")
        seen = conn.execute("SELECT count(*) AS n FROM retriever.vectors").fetchone()
        assert seen == {"n": 0}
        for statement in ("SELECT 1 FROM retriever.chunks", "SELECT 1 FROM memory.turns"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement)
