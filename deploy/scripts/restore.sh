#!/usr/bin/env bash
# Brings a backup back into an empty database, and checks it before it says that all is well:
#
#   createdb nianlun
#   NIANLUN_MIGRATE_DSN=postgresql://postgres@localhost/nianlun deploy/scripts/restore.sh nianlun.dump
#
# Roles belong to the server, not to a database: missing ones are made, without passwords. Give them
# theirs afterwards with `nianlun migrate --set-passwords`, which brings the schema up to date too.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || die "usage: restore.sh FILE"
need_dsn
need_all_rows "$NIANLUN_MIGRATE_DSN"
file="$1"
[ -r "$file" ] || die "$file cannot be read"
there="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT count(*) FROM pg_namespace WHERE nspname IN ('auth', 'memory', 'retriever', 'orchestrator')")"
[ "$there" = 0 ] || die "the database is not empty; restore into a new one"

for role in embedder retriever memory orchestrator maintenance; do
  sql "$NIANLUN_MIGRATE_DSN" "DO \$\$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'nianlun_$role') THEN
      CREATE ROLE nianlun_$role LOGIN NOINHERIT;
    END IF; END \$\$"
done

pg_restore --exit-on-error --dbname="$NIANLUN_MIGRATE_DSN" "$file"
sql "$NIANLUN_MIGRATE_DSN" "ANALYZE"

if [ -r "$file.counts" ]; then
  statement="$(sql "$NIANLUN_MIGRATE_DSN" "$(counting_statement)")"
  if ! differences="$(diff "$file.counts" <(sql "$NIANLUN_MIGRATE_DSN" "$statement"))"; then
    die "rows are missing (< backup, > restored):"$'\n'"$differences"
  fi
else
  echo "there is no $file.counts: rows are not compared" >&2
fi

# Every table with rows of tenants is as closed as it was.
open="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class AS c
  JOIN pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND n.nspname IN ('memory', 'retriever', 'orchestrator')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity
             AND EXISTS (SELECT 1 FROM pg_policy AS p WHERE p.polrelid = c.oid))")"
[ -z "$open" ] || die "row-level security is missing on $open"
invalid="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT count(*) FROM pg_index WHERE NOT indisvalid")"
[ "$invalid" = 0 ] || die "$invalid indexes are not valid"
echo "restored; next: nianlun migrate --set-passwords"
