#!/usr/bin/env bash
# What the scripts here have in common; sourced, not run.
#
#   NIANLUN_MIGRATE_DSN   connection string of the database's owner
#   PG_BIN                folder of psql, pg_dump and so on, where they are not on the PATH

set -euo pipefail
[ -z "${PG_BIN:-}" ] || PATH="$PG_BIN:$PATH"

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

need_dsn() {
  [ -n "${NIANLUN_MIGRATE_DSN:-}" ] || die "set NIANLUN_MIGRATE_DSN, a connection string of the database's owner"
}

# sql DSN STATEMENT: its rows, values separated by |, nothing else.
sql() {
  psql --no-psqlrc --quiet --no-align --tuples-only --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"
}

# Row-level security is forced on every table: only who is above it can copy rows of all tenants.
need_all_rows() {
  local able
  able="$(sql "$1" "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")"
  [ "$able" = t ] || die "this role sees no tenant's rows; use a superuser or a role with BYPASSRLS"
}

# One statement that counts every table of ours, as lines "schema.table count".
counting_statement() {
  cat <<'SQL'
SELECT string_agg(format('SELECT %L || '' '' || count(*) FROM %I.%I', n.nspname || '.' || c.relname,
                         n.nspname, c.relname), ' UNION ALL ' ORDER BY n.nspname, c.relname) || ' ORDER BY 1'
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p')
  AND n.nspname IN ('auth', 'migrations', 'memory', 'memory_queue', 'orchestrator',
                    'orchestrator_queue', 'retriever', 'retriever_queue')
SQL
}
