"""Every statement over tenants' tables names the tenant, in each table that it reads or writes.

It is the first of two guards (row-level security is the second), and what a database needs that
spreads tenants over servers. All statements are taken from the source of the services and from the
functions in the database; each is planned by PostgreSQL, so that what is checked is what is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg
import pytest
from pglast.parser import parse_plpgsql_json

from tests.support import sqltree, statements
from tests.support.db import Database

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")


@pytest.fixture(scope="module")
def owner(database: Database) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with database.connect() as conn:
        yield conn


@pytest.fixture(scope="module")
def rules(owner: psycopg.Connection[dict[str, Any]]) -> sqltree.Rules:
    return sqltree.rules_of(owner)


@cache
def _sent() -> list[statements.Statement]:
    return [one for source in statements.all_sources() for one in source.statements]


def _in_functions(conn: psycopg.Connection[dict[str, Any]]) -> dict[str, list[str]]:
    """Statements of the functions of our schemas: name -> statements."""
    found = conn.execute(
        "SELECT p.oid::regprocedure::text AS name, pg_get_functiondef(p.oid) AS definition,"
        " l.lanname AS language, p.prosrc AS body FROM pg_proc AS p"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " JOIN pg_language AS l ON l.oid = p.prolang WHERE n.nspname = ANY(%s)",
        (sqltree.SCHEMAS,),
    ).fetchall()
    out: dict[str, list[str]] = {}
    for row in found:
        if row["language"] == "plpgsql":
            queries = list(_queries(json.loads(parse_plpgsql_json(row["definition"]))))
        else:
            queries = [row["body"]]
        out[row["name"]] = [query for query in queries if _STATEMENT.match(query)]
    return out


def _queries(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("query"), str):
            yield node["query"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _queries(item)


def test_no_table_is_named_outside_of_a_statement_that_was_found() -> None:
    assert [left for source in statements.all_sources() for left in source.left] == []
    named = {table for one in _sent() for table in sqltree.tables(one.sql)}
    assert len(_sent()) > 200
    assert len({table for table in named if table.startswith("memory.")}) > 12
    assert len({table for table in named if table.startswith("retriever.")}) > 12


def test_every_statement_is_one_that_postgresql_can_plan(
    owner: psycopg.Connection[dict[str, Any]],
) -> None:
    broken = []
    for one in _sent():
        try:
            owner.execute(f"EXPLAIN (GENERIC_PLAN) {one.sql}".encode())
        except psycopg.Error as error:
            broken.append(f"{one}: {error}")
    assert broken == []


def test_every_statement_names_the_tenant_and_can_be_distributed(rules: sqltree.Rules) -> None:
    faults = [f"{one}: {fault}" for one in _sent() for fault in sqltree.faults(one.sql, rules)]
    assert faults == []


def test_so_do_the_functions(
    owner: psycopg.Connection[dict[str, Any]], rules: sqltree.Rules
) -> None:
    functions = _in_functions(owner)
    assert sum(len(found) for found in functions.values()) > 20
    faults = [
        f"{name}: {fault}: {query[:60]}"
        for name, queries in functions.items()
        for query in queries
        for fault in sqltree.faults(query, rules)
    ]
    assert faults == []


_BROKEN = """
SELECT 1 FROM memory.turns WHERE user_id = $2
  --> memory.turns without its tenant
SELECT 1 FROM memory.turns WHERE tenant_id = $1 OR user_id = $2
  --> memory.turns without its tenant
SELECT 1 FROM memory.turns WHERE tenant_id = $2
  --> memory.turns without its tenant
SELECT 1 FROM memory.turns AS t JOIN memory.lexical AS l USING (tenant_id) WHERE t.tenant_id = $1
  --> memory.lexical without its tenant
SELECT (SELECT count(*) FROM memory.turns AS t) FROM memory.users AS u WHERE u.tenant_id = $1
  --> memory.turns without its tenant
WITH all_of AS (SELECT * FROM memory.turns) SELECT 1 FROM all_of
  --> memory.turns without its tenant
DELETE FROM memory.turns WHERE user_id = $2
  --> memory.turns without its tenant
UPDATE memory.turns AS t SET flags = '{}' FROM memory.users AS u WHERE t.tenant_id = $1
  --> memory.users without its tenant
INSERT INTO memory.turns (user_id) VALUES ($2)
  --> tenant_id is not among the columns
INSERT INTO memory.turns (tenant_id) VALUES ($1), ($2)
  --> tenant_id is not that of the transaction
INSERT INTO memory.turns (tenant_id) SELECT $1 FROM unnest($2::int[])
  --> INSERT ... SELECT may be a COPY
INSERT INTO memory.settings (tenant_id) VALUES ($1) ON CONFLICT (etag) DO UPDATE SET etag = now()
  --> now in ON CONFLICT
INSERT INTO memory.usage (tenant_id) VALUES ($1) ON CONFLICT (day) DO UPDATE SET day = CURRENT_DATE
  --> SQLValueFunction in ON CONFLICT
UPDATE memory.users SET position = nextval('memory.positions') WHERE tenant_id = $1
  --> nextval is volatile
UPDATE memory.sessions SET end_time = coalesce(end_time, now()) WHERE tenant_id = $1
  --> now in CASE or COALESCE
UPDATE memory.turns SET digest_error = to_char(event_time, 'x') WHERE tenant_id = $1
  --> to_char is not immutable and has a column as argument
DELETE FROM memory.turns WHERE tenant_id = $1 RETURNING turn_id || ':' AS id
  --> not cast to text in RETURNING
DELETE FROM memory.turns WHERE tenant_id = $1 RETURNING xmax = 0 AS fresh
  --> system column xmax in RETURNING
"""


@pytest.mark.parametrize("case", [c.splitlines() for c in re.findall(r".+\n  --> .+", _BROKEN)])
def test_a_statement_that_cannot_be_distributed_is_found(
    rules: sqltree.Rules, case: list[str]
) -> None:
    statement, fault = case[0], case[1].removeprefix("  --> ")
    assert fault in "; ".join(sqltree.faults(statement, rules))


def test_what_needs_no_tenant_is_left_alone(rules: sqltree.Rules) -> None:
    assert sqltree.faults("SELECT 1", rules) == []
    assert sqltree.faults("UPDATE memory.jobs SET end_time = clock_timestamp()", rules) == []
