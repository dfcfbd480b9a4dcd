#!/usr/bin/env bash
# Takes the data of a stopped server to a newer major version of PostgreSQL, in place (pg_upgrade):
#
#   deploy/scripts/upgrade-in-place.sh OLD_BIN OLD_DATA NEW_BIN NEW_DATA
#
# Run it as the user that the server runs as, with a backup at hand. The new version needs pgvector
# too, of the same version or newer. The old data stays as it was until you remove it.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 4 ] || die "usage: upgrade-in-place.sh OLD_BIN OLD_DATA NEW_BIN NEW_DATA"
old_bin="$1" old_data="$2" new_bin="$3" new_data="$4"
[ "$(id -u)" != 0 ] || die "PostgreSQL does not run as root; use the user that owns $old_data"
[ -r "$old_data/PG_VERSION" ] || die "$old_data holds no database"
[ ! -e "$old_data/postmaster.pid" ] || die "a server runs on $old_data: stop it first"
[ ! -e "$new_data/PG_VERSION" ] || die "$new_data holds a database already"

control() { # the value of a line of pg_controldata
  "$old_bin/pg_controldata" "$old_data" | sed -n "s/^$1: *//p"
}
checksums=--data-checksums
[ "$(control 'Data page checksum version')" != 0 ] || checksums=--no-data-checksums
user="${PGUSER:-postgres}"
# The locale is taken over by pg_upgrade; here it only has to exist.
"$new_bin/initdb" --pgdata="$new_data" --username="$user" --encoding=UTF8 --locale=C "$checksums" --auth-local=trust --auth-host=reject > /dev/null

work="$(mktemp -d)" # pg_upgrade keeps its log and a socket in the folder it is run in
trap 'rm -rf "$work"' EXIT
cd "$work"
upgrade() {
  "$new_bin/pg_upgrade" --old-bindir="$old_bin" --old-datadir="$old_data" \
    --new-bindir="$new_bin" --new-datadir="$new_data" --username="$user" --socketdir="$work" "$@"
}
upgrade --check
upgrade --copy
for file in pg_hba.conf pg_ident.conf postgresql.conf; do
  [ ! -e "$old_data/$file" ] || cp "$old_data/$file" "$new_data/$file"
done
cat <<EOF
done; now, with the new server on $new_data:
  vacuumdb --all --analyze-in-stages --missing-stats-only
  psql -c 'ALTER EXTENSION vector UPDATE' "\$NIANLUN_MIGRATE_DSN"
  deploy/scripts/refresh-collations.sh
  nianlun migrate
EOF
