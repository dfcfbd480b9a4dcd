#!/usr/bin/env bash
# Copies a whole database into one file, while everything goes on:
#
#   NIANLUN_MIGRATE_DSN=postgresql://postgres@localhost/nianlun deploy/scripts/backup.sh nianlun.dump
#
# Beside the file comes nianlun.dump.counts: the rows of every table in the very snapshot that was
# copied, against which restore.sh checks what it has restored.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || die "usage: backup.sh FILE"
need_dsn
need_all_rows "$NIANLUN_MIGRATE_DSN"
file="$1"
[ ! -e "$file" ] || die "$file is there already"
trap 'rm -f "$file.partial" "$file.counts.partial"' EXIT

# A session that holds one snapshot open: the dump and the counts both see it.
coproc SESSION { psql --no-psqlrc --quiet --no-align --tuples-only --set=ON_ERROR_STOP=1 --dbname="$NIANLUN_MIGRATE_DSN"; }
ask() { printf '%s\n' "$1" >&"${SESSION[1]}"; }
ask "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
ask "SELECT pg_export_snapshot();"
IFS= read -r snapshot <&"${SESSION[0]}" || die "the database gave no snapshot"

pg_dump --format=custom --snapshot="$snapshot" --file="$file.partial" --dbname="$NIANLUN_MIGRATE_DSN"

ask "$(counting_statement) \\gexec"
ask "SELECT 'end';"
while IFS= read -r line <&"${SESSION[0]}" && [ "$line" != end ]; do
  printf '%s\n' "$line"
done > "$file.counts.partial"
[ -s "$file.counts.partial" ] || die "there are no tables of Nianlun in this database"

pg_restore --list "$file.partial" > /dev/null # the file can be read to its end
mv "$file.counts.partial" "$file.counts"
mv "$file.partial" "$file"
rows="$(awk '{ n += $2 } END { print n + 0 }' "$file.counts")"
echo "$file: $(wc -l < "$file.counts") tables, $rows rows"
