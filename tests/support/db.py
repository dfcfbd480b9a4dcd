"""The one PostgreSQL of a test session, whatever it is made of, and databases on it.

`--db=auto|dsn|container|embedded` picks the server; no test knows which one it got. Databases are
cloned from a template that is migrated once. Roles belong to the whole cluster, not to a database:
they are created under a cluster-wide lock, always with the same password, and never dropped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from services.common.migrations.runner import ROLES, migrate
from tests.support import keys

DSN_VARIABLE = "NIANLUN_TEST_DSN"
IMAGE = "pgvector/pgvector:pg18"
SERVICES = ("embedder", "retriever", "memory", "orchestrator")
_PASSWORD = "nianlun-test"
_LOCK = 0x6E69616E  # any fixed number: serialises template building over test sessions


@dataclass(frozen=True)
class Server:
    """A running PostgreSQL.

    `dsn_of(dbname, user)` makes a URL; `stop`/`start` are there only where the server is ours.
    """

    kind: str
    admin_dsn: str
    dsn_of: Callable[[str, str | None], str]
    stop: Callable[[], None] | None = None
    start: Callable[[], None] | None = None


@dataclass(frozen=True)
class Tenant:
    """A tenant with one key, and the credential a client sends for it."""

    tenant_id: str
    key: str = field(repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """gRPC call metadata that carries the key."""
        return (("authorization", f"Bearer {self.key}"),)


@dataclass(frozen=True)
class Database:
    """One migrated database."""

    server: Server
    name: str

    @property
    def owner_dsn(self) -> str:
        """As the owner of all tables; a superuser on most servers, whom no policy binds."""
        return self.server.dsn_of(self.name, None)

    def role_dsn(self, service: str) -> str:
        """As the login role of one service (embedder, retriever, memory, orchestrator), or as
        "maintenance", which builds indexes."""
        return self.server.dsn_of(self.name, f"nianlun_{service}")

    def tenant(
        self,
        tenant_id: str | None = None,
        *,
        scopes: tuple[str, ...] = ("read", "write", "admin"),
        expires_in_s: float | None = None,
    ) -> Tenant:
        """Create a tenant (if it is not there) with a fresh key."""
        tenant_id = tenant_id or f"t-{secrets.token_hex(4)}"
        key = keys.create(self.owner_dsn, tenant_id, scopes=scopes, expires_in_s=expires_in_s)
        return Tenant(tenant_id, key)

    def connect(self, service: str | None = None) -> psycopg.Connection[dict[str, object]]:
        """A plain autocommit connection with dict rows, as the owner or as a service role."""
        dsn = self.owner_dsn if service is None else self.role_dsn(service)
        return psycopg.connect(dsn, autocommit=True, row_factory=dict_row)

    def leave(self) -> None:
        """Refuse every connection and end those there are: to its clients the database is away,
        while the server goes on for the others."""
        self._allow_connections(False)

    def come_back(self) -> None:
        """Take connections again."""
        self._allow_connections(True)

    def _allow_connections(self, allowed: bool) -> None:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(
            sql.Identifier(self.name), sql.Literal(allowed)
        )
        with psycopg.connect(self.server.admin_dsn, autocommit=True) as conn:
            conn.execute(statement)
            if not allowed:
                conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    (self.name,),
                )


class Databases:
    """Clones the migrated template; drops its clones at the end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._tag = secrets.token_hex(3)
        self._template: str | None = None
        self._count = 0
        self._names: list[str] = []

    def new(self) -> Database:
        """A freshly migrated database of its own, in some 50 ms."""
        if self._template is None:
            self._template = self._build_template()
        self._count += 1
        name = f"nl_test_{self._tag}_{self._count}"
        self._create(name, self._template)
        return Database(self.server, name)

    def empty(self) -> Database:
        """A database without any schema, for tests of the migrations themselves."""
        self._count += 1
        name = f"nl_test_{self._tag}_{self._count}"
        self._create(name, "template0")
        return Database(self.server, name)

    def drop_all(self) -> None:
        """Drop every database made here, ending connections that are still open."""
        with psycopg.connect(self.server.admin_dsn, autocommit=True) as conn:
            for name in reversed(self._names):
                conn.execute(
                    sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                )
        self._names.clear()

    def _create(self, name: str, template: str) -> None:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        with psycopg.connect(self.server.admin_dsn, autocommit=True) as conn:
            conn.execute(statement)
        self._names.append(name)

    def _build_template(self) -> str:
        name = f"nl_test_{self._tag}_template"
        self._create(name, "template0")
        with psycopg.connect(self.server.admin_dsn, autocommit=True) as lock:
            # CREATE ROLE races between two test sessions on one cluster; advisory locks are per
            # database, so it is taken in the maintenance database that all sessions share.
            lock.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            migrate(self.server.dsn_of(name, None), self.passwords)
        return name

    @property
    def passwords(self) -> dict[str, str]:
        """What `migrate` gives the roles; the embedded server trusts its socket instead."""
        if self.server.kind == "embedded":
            return {}
        return dict.fromkeys(ROLES, _PASSWORD)


@contextmanager
def serve(choice: str, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """The server for this session by the `--db` option; skips or fails with a readable reason.
    `settings` go to an embedded server; others have their own."""
    if choice == "auto":
        if os.environ.get(DSN_VARIABLE):
            choice = "dsn"
        else:
            choice = "container" if _docker_available() else "embedded"
    if choice == "dsn":
        dsn = os.environ.get(DSN_VARIABLE)
        if not dsn:
            pytest.exit(f"--db=dsn needs {DSN_VARIABLE}, a DSN of a role that may create databases")
        yield Server("dsn", dsn, _url_dsn(dsn))
    elif choice == "container":
        with _container() as server:
            yield server
    else:
        with _embedded(settings or {}) as server:
            yield server


def _docker_available() -> bool:
    required = os.environ.get("REQUIRE_DOCKER") == "1"
    try:
        import docker
    except ImportError:
        reason = "the docker package is not installed"
    else:
        try:
            client = docker.from_env(timeout=5)
            client.ping()
            client.close()
        except docker.errors.DockerException as error:
            reason = str(error)
        else:
            return True
    if required:
        pytest.exit(f"REQUIRE_DOCKER=1, but there is no Docker daemon: {reason}", returncode=1)
    return False


@contextmanager
def _container() -> Iterator[Server]:
    if not _docker_available():
        pytest.exit("--db=container needs a Docker daemon", returncode=1)
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer(IMAGE, username="postgres", password=_PASSWORD, driver=None) as box:
        dsn = box.get_connection_url()
        yield Server("container", dsn, _url_dsn(dsn))


@contextmanager
def _embedded(settings: Mapping[str, str]) -> Iterator[Server]:
    from tests.support.embedded import EmbeddedPostgres

    postgres = EmbeddedPostgres(settings)
    try:
        postgres.start()
        yield Server(
            "embedded",
            postgres.dsn("postgres"),
            lambda dbname, user: postgres.dsn(dbname, user or "postgres"),
            stop=postgres.stop,
            start=postgres.start,
        )
    finally:
        postgres.remove()


def _url_dsn(admin: str) -> Callable[[str, str | None], str]:
    parts = urlsplit(admin)

    def make(dbname: str, user: str | None) -> str:
        netloc = parts.netloc
        if user is not None:
            host = netloc.rpartition("@")[2]
            netloc = f"{quote(user)}:{quote(_PASSWORD)}@{host}"
        return urlunsplit((parts.scheme, netloc, f"/{dbname}", parts.query, ""))

    return make
