"""procrastinate's tables, once per service that runs jobs, in a PostgreSQL schema of their own."""

from __future__ import annotations

from importlib import resources

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

QUEUES = {
    "retriever_queue": "nianlun_retriever",
    "memory_queue": "nianlun_memory",
    "orchestrator_queue": "nianlun_orchestrator",
}
"""Queue schemas, and the role that works on each."""


def upgrade(conn: psycopg.Connection[DictRow], schema: str) -> bool:
    """Install procrastinate into ``schema`` or bring it up to date; True when something was done.

    A fresh install is procrastinate's schema file; later ones are those of its migration files that
    are newer than the last one recorded. All in one transaction, privileges included.
    """
    role = QUEUES[schema]
    files = _migration_files()
    latest = files[-1]
    with conn.transaction():
        recorded = conn.execute(
            "SELECT name FROM migrations.applied WHERE schema_name = %s"
            " ORDER BY version DESC LIMIT 1",
            (schema,),
        ).fetchone()
        if recorded is not None and recorded["name"] == latest:
            return False
        identifier = sql.Identifier(schema)
        conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(identifier))
        conn.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(identifier))
        if recorded is None:
            _run(conn, _read("schema.sql"))
        else:
            for name in files:
                if name > recorded["name"]:
                    _run(conn, _read("migrations", name))
        conn.execute("SET LOCAL search_path = pg_catalog")
        for statement in (
            "GRANT USAGE ON SCHEMA {} TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {} TO {}",
            "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {} TO {}",
        ):
            conn.execute(sql.SQL(statement).format(identifier, sql.Identifier(role)))
        conn.execute(
            "INSERT INTO migrations.applied (schema_name, version, name, checksum)"
            " SELECT %s, coalesce(max(version), 0) + 1, %s, '' FROM migrations.applied"
            " WHERE schema_name = %s",
            (schema, latest, schema),
        )
    return True


def _migration_files() -> list[str]:
    folder = resources.files("procrastinate.sql") / "migrations"
    return sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))


def _read(*parts: str) -> bytes:
    file = resources.files("procrastinate.sql")
    for part in parts:
        file = file / part
    return file.read_bytes()


def _run(conn: psycopg.Connection[DictRow], script: bytes) -> None:
    # Without parameters psycopg sends the text as it is: many statements, percent signs included.
    conn.execute(script)
