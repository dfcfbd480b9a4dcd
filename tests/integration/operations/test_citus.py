"""deploy/scripts/citus-distribute.sh against a PostgreSQL in which stand-ins for Citus' functions
hold our real tables to its published rules. It is no Citus: what workers do is not seen here.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from services.local.postgres import _binaries
from tests.support.db import Database, Databases
from tests.support.processes import ROOT

SCRIPT = ROOT / "deploy" / "scripts" / "citus-distribute.sh"
NODES = ("coordinator", "worker-1:5433", "worker-2")

STAND_INS = """
CREATE TABLE pg_dist_node (nodename text, nodeport int, groupid int, UNIQUE (nodename, nodeport));
CREATE TABLE pg_dist_partition (logicalrelid regclass PRIMARY KEY, beside text, place serial);
CREATE FUNCTION citus_set_coordinator_host(host text, port int) RETURNS void LANGUAGE sql
AS 'INSERT INTO pg_dist_node VALUES (host, port, 0)';
CREATE FUNCTION citus_add_node(host text, port int) RETURNS void LANGUAGE sql
AS 'INSERT INTO pg_dist_node VALUES (host, port, 1) ON CONFLICT DO NOTHING';
CREATE FUNCTION create_distributed_table(
    p_table regclass, p_column text, colocate_with text DEFAULT 'default'
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_place int2 := (SELECT attnum FROM pg_attribute
                     WHERE attrelid = p_table AND attname = p_column AND NOT attisdropped);
    v_found text;
BEGIN
    IF v_place IS NULL THEN
        RAISE 'column % of % does not exist', p_column, p_table;
    END IF;
    SELECT indexrelid::regclass INTO v_found FROM pg_index
    WHERE indrelid = p_table AND indisunique AND NOT v_place = ANY (indkey::int2[]);
    IF FOUND THEN
        RAISE 'unique index % of % is without the distribution column', v_found, p_table;
    END IF;
    -- The distribution column at the same place on both sides, and the other side distributed.
    SELECT conname INTO v_found FROM pg_constraint AS f
    WHERE contype = 'f' AND conrelid = p_table AND NOT EXISTS (
        SELECT 1 FROM unnest(f.conkey, f.confkey) AS k (here, there)
        JOIN pg_attribute AS a ON a.attrelid = f.confrelid AND a.attnum = k.there
        WHERE k.here = v_place AND a.attname = p_column
          AND f.confrelid IN (SELECT logicalrelid FROM pg_dist_partition));
    IF FOUND THEN
        RAISE 'foreign key % of % leaves its shard', v_found, p_table;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = p_table AND NOT tgisinternal) THEN
        RAISE 'triggers are not supported on distributed tables';
    END IF;
    IF colocate_with <> 'none'
       AND colocate_with::regclass NOT IN (SELECT logicalrelid FROM pg_dist_partition) THEN
        RAISE '% is not distributed', colocate_with;
    END IF;
    INSERT INTO pg_dist_partition VALUES (p_table, colocate_with);
END;
$$;
CREATE FUNCTION run_command_on_shards(p_table regclass, p_command text)
RETURNS TABLE (shardid bigint, success boolean, result text) LANGUAGE plpgsql AS $$
BEGIN
    shardid := 1; success := true;
    EXECUTE format(p_command, p_table) INTO result;
    result := CASE result WHEN 'true' THEN 't' WHEN 'false' THEN 'f' ELSE result END;
    RETURN NEXT;
END;
$$;
"""


@pytest.fixture
def cluster(databases: Databases) -> Database:
    database = databases.new()
    with database.connect() as conn:
        conn.execute(STAND_INS.encode())
    return database


def distribute(database: Database, *nodes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *nodes],
        env={
            "PATH": os.environ["PATH"],
            "PG_BIN": str(_binaries()),
            "NIANLUN_MIGRATE_DSN": database.owner_dsn,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def rows(database: Database, query: str) -> list[dict[str, Any]]:
    with database.connect() as conn:
        return conn.execute(query.encode()).fetchall()


def test_every_table_of_tenants_is_distributed_with_the_others_and_nothing_else(
    cluster: Database,
) -> None:
    done = distribute(cluster, *NODES)
    assert done.returncode == 0, done.stderr
    found = rows(
        cluster, "SELECT logicalrelid::text AS name, beside FROM pg_dist_partition ORDER BY place"
    )
    wanted = rows(
        cluster,
        "SELECT DISTINCT attrelid::regclass::text AS name FROM pg_attribute AS a"
        " JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relkind = 'r' AND attname = 'tenant_id'"
        " AND c.relnamespace NOT IN ('auth'::regnamespace) AND c.relname <> 'jobs'",
    )
    assert {row["name"] for row in found} == {row["name"] for row in wanted}
    assert len(found) > 30
    assert [row["beside"] for row in found] == ["none", *[found[0]["name"]] * (len(found) - 1)]
    assert f"{len(found)} tables are distributed by tenant over 2 workers" in done.stdout
    nodes = rows(cluster, "SELECT nodename, nodeport, groupid FROM pg_dist_node ORDER BY 3, 1")
    assert [tuple(node.values()) for node in nodes] == [
        ("coordinator", 5432, 0),
        ("worker-1", 5433, 1),
        ("worker-2", 5432, 1),
    ]


def test_settings_reach_the_workers_and_plans_know_the_tenant(cluster: Database) -> None:
    assert distribute(cluster, *NODES).returncode == 0
    assert rows(cluster, "SELECT current_setting('citus.propagate_set_commands') AS v") == [
        {"v": "local"}
    ]
    plans = rows(
        cluster,
        "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'memory'::regnamespace"
        " AND array_to_string(proconfig, ',') LIKE '%plan_cache_mode%'",
    )
    assert "append_turns" in {row["proname"] for row in plans}
    assert all("plan_cache_mode=force_custom_plan" in row["proconfig"] for row in plans)


def test_a_second_run_distributes_what_a_migration_has_added(cluster: Database) -> None:
    assert distribute(cluster, *NODES).returncode == 0
    again = distribute(cluster, *NODES)
    assert again.returncode == 0, again.stderr
    assert "is distributed" not in again.stdout
    with cluster.connect() as conn:
        conn.execute("CREATE TABLE memory.later (tenant_id text PRIMARY KEY)")
        conn.execute("SELECT auth.protect('memory.later')")
    later = distribute(cluster, *NODES)
    assert later.returncode == 0, later.stderr
    assert "memory.later is distributed" in later.stdout


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE memory.turns NO FORCE ROW LEVEL SECURITY", "without row-level security"),
        ("CREATE UNIQUE INDEX alone ON memory.turns (turn_id)", "unique index memory.alone"),
        ("ALTER TABLE memory.usage DROP COLUMN tenant_id CASCADE", "does not exist"),
    ],
)
def test_what_cannot_be_distributed_stops_it(cluster: Database, change: str, reason: str) -> None:
    with cluster.connect() as conn:
        conn.execute(change.encode())
    done = distribute(cluster, *NODES)
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_database_without_citus_is_refused(databases: Databases) -> None:
    done = distribute(databases.new(), *NODES)
    assert done.returncode == 1
    assert "no extension citus" in done.stderr
    assert "usage" in distribute(databases.new(), "coordinator").stderr
