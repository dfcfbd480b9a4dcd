"""The migrate step: brings every schema of one database to the version this code needs.

Safe to run anywhere, any number of times, by several processes at once: one of them holds an
advisory lock and does the work, the others wait and find nothing left to do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from services.common.errors import StartupError
from services.common.migrations import queue, versions
from services.common.migrations.versions import FOLDERS, Step

ROLES = (
    "nianlun_embedder",
    "nianlun_retriever",
    "nianlun_memory",
    "nianlun_orchestrator",
    "nianlun_maintenance",
)
"""Login roles: one a service, and the one that builds HNSW indexes."""

_LOCK = 0x6E69616E6C756E  # "nianlun"
_LOCK_POLL_S = 0.1
_LOCK_TIMEOUT_S = 300.0

_ROLE_TRIES = 20

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS migrations;
CREATE TABLE IF NOT EXISTS migrations.applied (
    schema_name text NOT NULL,
    version     integer NOT NULL,
    name        text NOT NULL,
    checksum    text NOT NULL,
    apply_time  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (schema_name, version)
);
GRANT USAGE ON SCHEMA migrations TO PUBLIC;
GRANT SELECT ON migrations.applied TO PUBLIC;
"""

Owner = psycopg.Connection[DictRow]


@dataclass(frozen=True)
class Report:
    """What one run did: the steps applied, as ``schema/0001_name``."""

    applied: tuple[str, ...] = field(default=())


def migrate(owner_dsn: str, role_passwords: Mapping[str, str] | None = None) -> Report:
    """Bring the database of ``owner_dsn`` up to date and set the passwords of the service roles.

    Blocking; call it by ``asyncio.to_thread`` from async code. Raises StartupError with a readable
    reason when the database cannot be reached, an applied step was edited, or the lock is not free
    within five minutes.
    """
    try:
        with psycopg.connect(owner_dsn, autocommit=True, row_factory=dict_row) as conn:
            _lock(conn)
            try:
                conn.execute(_BOOTSTRAP)
                done: list[str] = []
                for schema in FOLDERS:
                    queue_schema = f"{schema}_queue"
                    if queue_schema in queue.QUEUES and queue.upgrade(conn, queue_schema):
                        done.append(queue_schema)
                    done.extend(_migrate_schema(conn, schema))
                _set_passwords(conn, role_passwords or {})
                return Report(tuple(done))
            finally:
                if not conn.closed:
                    conn.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
    except psycopg.OperationalError as error:
        raise StartupError(
            f"The database cannot be migrated: {error}. Check that PostgreSQL runs and that the"
            " owner's DSN is right."
        ) from error


def role_dsn(owner_dsn: str, role: str, password: str | None = None) -> str:
    """The owner's DSN with another user and password (None where the server trusts the user)."""
    parts = conninfo_to_dict(owner_dsn)
    parts.pop("password", None)
    parts["user"] = role
    if password is not None:
        parts["password"] = password
    return make_conninfo("", **parts)


def _lock(conn: Owner) -> None:
    # Polled, not waited for: a session that waits inside a statement holds a snapshot, and CREATE
    # INDEX CONCURRENTLY of the one that works would wait for that snapshot in turn.
    give_up = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        row = conn.execute("SELECT pg_try_advisory_lock(%s) AS locked", (_LOCK,)).fetchone()
        if row is not None and row["locked"]:
            return
        if time.monotonic() > give_up:
            raise StartupError("Another process has been migrating this database for 5 minutes.")
        time.sleep(_LOCK_POLL_S)


def _migrate_schema(conn: Owner, schema: str) -> list[str]:
    rows = conn.execute(
        "SELECT version, checksum FROM migrations.applied WHERE schema_name = %s", (schema,)
    ).fetchall()
    checksums = {int(row["version"]): str(row["checksum"]) for row in rows}
    done = []
    for step in versions.steps(schema):
        label = f"{schema}/{step.version:04d}_{step.name}"
        applied = checksums.get(step.version)
        if applied is None:
            _apply(conn, step, label)
            done.append(label)
        elif applied != step.checksum:
            raise StartupError(
                f"Migration {label} was edited after it was applied. Restore the file and put the"
                " change into a new step."
            )
    return done


def _apply(conn: Owner, step: Step, label: str) -> None:
    try:
        if step.transactional:
            with conn.transaction():
                conn.execute(step.sql.encode())
                _record(conn, step)
        else:
            for statement in _statements(step.sql):
                conn.execute(statement.encode())
            _record(conn, step)
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError) and conn.broken:
            raise
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        raise StartupError(f"Migration {label} failed: {error}.{hint}") from error


def _record(conn: Owner, step: Step) -> None:
    conn.execute(
        "INSERT INTO migrations.applied (schema_name, version, name, checksum)"
        " VALUES (%s, %s, %s, %s)",
        (step.schema, step.version, step.name, step.checksum),
    )


def _statements(script: str) -> list[str]:
    """Statements of a file without a transaction: plain ones, each ended by ``;`` at a line's end.

    Several in one message would again be one transaction, which is what such a file must avoid.
    """
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [
        part for part in re.split(r";\s*$", "\n".join(lines), flags=re.MULTILINE) if part.strip()
    ]


def _set_passwords(conn: Owner, passwords: Mapping[str, str]) -> None:
    for role, password in passwords.items():
        if role not in ROLES:
            raise ValueError(f"{role} is not a service role")
        _set_password(conn, role, password)


def _set_password(conn: Owner, role: str, password: str) -> None:
    """Roles belong to the cluster: a migrator of another database may be at the same one."""
    statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(
        sql.Identifier(role), sql.Literal(password)
    )
    for _ in range(_ROLE_TRIES):
        try:
            conn.execute(statement)
        except psycopg.errors.InternalError_:  # "tuple concurrently updated"
            time.sleep(_LOCK_POLL_S)
        else:
            return
    raise StartupError(f"The password of role {role} could not be set; run migrate again.")
