#!/usr/bin/env bash
# After the C library or ICU of the server has changed (a new base image, a new machine): text sorts
# differently, and indexes over text may miss rows. Rebuilds them, then tells PostgreSQL so:
#
#   NIANLUN_MIGRATE_DSN=postgresql://postgres@localhost/nianlun deploy/scripts/refresh-collations.sh
#
# Writers of a table wait only at the end of each rebuild. Nothing is done where nothing has changed.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 0 ] || die "usage: refresh-collations.sh"
need_dsn
name="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT quote_ident(current_database())")"
changed="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT datcollversion IS DISTINCT FROM pg_database_collation_actual_version(oid)
  FROM pg_database WHERE datname = current_database()")"
# Collations that columns or indexes name themselves, e.g. "C", which never changes.
named="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT string_agg(c.oid::regcollation::text, ' ') FROM pg_collation AS c
  WHERE c.collprovider <> 'd' AND c.collversion IS DISTINCT FROM pg_collation_actual_version(c.oid)
    AND c.oid IN (SELECT attcollation FROM pg_attribute)")"
if [ "$changed" != t ] && [ -z "$named" ]; then
  echo "the collations are those that the indexes were built with"
  exit 0
fi
sql "$NIANLUN_MIGRATE_DSN" "REINDEX DATABASE CONCURRENTLY $name"
invalid="$(sql "$NIANLUN_MIGRATE_DSN" "SELECT count(*) FROM pg_index WHERE NOT indisvalid")"
[ "$invalid" = 0 ] || die "$invalid indexes could not be rebuilt; drop the invalid ones and run this again"
[ "$changed" != t ] || sql "$NIANLUN_MIGRATE_DSN" "ALTER DATABASE $name REFRESH COLLATION VERSION"
for collation in $named; do
  sql "$NIANLUN_MIGRATE_DSN" "ALTER COLLATION $collation REFRESH VERSION"
done
echo "indexes rebuilt, collation versions refreshed"
