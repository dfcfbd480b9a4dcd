#!/usr/bin/env bash
# Spreads the tables of tenants over the workers of a Citus cluster. After each migration, and any
# number of times: what is distributed already stays as it is.
#
#   NIANLUN_MIGRATE_DSN=postgresql://postgres@coordinator/nianlun \
#     deploy/scripts/citus-distribute.sh COORDINATOR WORKER [WORKER ...]
#
# Nodes are given by the host, or host:port, by which the others reach them. The extension must be
# there on each of them, in a database of the same name. Jobs, keys and the queue stay on the
# coordinator. See docs/operations/scale-out.md#citus.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -ge 2 ] || die "usage: citus-distribute.sh COORDINATOR WORKER [WORKER ...]"
need_dsn
ask() { sql "$NIANLUN_MIGRATE_DSN" "$1"; }
host() { echo "${1%%:*}"; }
port() { case "$1" in *:*) echo "${1##*:}" ;; *) echo 5432 ;; esac; }

[ -n "$(ask "SELECT to_regproc('citus_add_node')")" ] || die "this database has no extension citus"
coordinator="$1"
shift
if [ "$(ask "SELECT count(*) FROM pg_dist_node WHERE groupid = 0")" = 0 ]; then
  ask "SELECT citus_set_coordinator_host('$(host "$coordinator")', $(port "$coordinator"))" > /dev/null
fi
for worker in "$@"; do
  ask "SELECT citus_add_node('$(host "$worker")', $(port "$worker"))" > /dev/null
done

# SET LOCAL, by which a transaction says whose it is, reaches the workers.
name="$(ask "SELECT quote_ident(current_database())")"
ask "ALTER DATABASE $name SET citus.propagate_set_commands = 'local'"

# Every table of tenants but the status of jobs, which lies beside the queue; those first to which
# foreign keys of others point.
tables="$(ask "
WITH RECURSIVE ours AS (
  SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
  WHERE n.nspname IN ('retriever', 'memory', 'orchestrator') AND c.relkind = 'r'
    AND c.relname <> 'jobs'
), deep AS (
  SELECT oid, name, 0 AS depth FROM ours
  UNION ALL
  SELECT o.oid, o.name, d.depth + 1 FROM deep AS d
  JOIN pg_constraint AS f ON f.confrelid = d.oid AND f.contype = 'f' AND f.conrelid <> f.confrelid
  JOIN ours AS o ON o.oid = f.conrelid
)
SELECT name FROM deep GROUP BY name ORDER BY max(depth), name")"
first="$(head -n 1 <<< "$tables")"
[ -n "$first" ] || die "there are no tables: migrate first"
for table in $tables; do
  if [ "$(ask "SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = '$table'::regclass")" = 0 ]; then
    beside="$first"
    [ "$table" != "$first" ] || beside=none
    ask "SELECT create_distributed_table('$table', 'tenant_id', colocate_with => '$beside')" > /dev/null
    echo "$table is distributed"
  fi
done

# Citus has to know the tenant when it plans, which a plan for all values hides from it.
ask "SELECT format('ALTER FUNCTION %s SET plan_cache_mode = force_custom_plan', p.oid::regprocedure)
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
  WHERE n.nspname IN ('retriever', 'memory', 'orchestrator')
    AND 'plan_cache_mode=force_generic_plan' = ANY (p.proconfig)" | while read -r statement; do
  ask "$statement"
done

# The second guard must stand on the workers too.
for table in $tables; do
  open="$(ask "SELECT count(*) FROM run_command_on_shards('$table',
    \$check\$SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = '%s'::regclass\$check\$)
    WHERE NOT success OR result <> 't'")"
  [ "$open" = 0 ] || die "$open shards of $table are without row-level security"
done
echo "$(wc -l <<< "$tables") tables are distributed by tenant over $# workers"
