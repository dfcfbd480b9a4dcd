#!/usr/bin/env bash
# Starts PostgreSQL so that it can reach the other nodes of its cluster: Citus connects to them as the
# role that asks, and libpq finds the passwords of these roles in a file that only the server reads.
set -euo pipefail
export PGPASSFILE=/run/nianlun-pgpass
install --mode=600 --owner=postgres /dev/null "$PGPASSFILE"
for name in owner retriever memory orchestrator maintenance; do
  secret="/run/secrets/db_${name}_password"
  [ -r "$secret" ] || continue
  role="nianlun_$name"
  [ "$name" != owner ] || role=postgres
  printf '*:*:*:%s:%s\n' "$role" "$(sed 's/[\\:]/\\&/g' "$secret")" >> "$PGPASSFILE"
done
if [ "$1" != postgres ]; then
  exec "$@"
fi
exec docker-entrypoint.sh "$@"
