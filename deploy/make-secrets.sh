#!/usr/bin/env bash
# Makes the secrets that docker-compose.yml reads, once; existing ones are kept.
#   deploy/make-secrets.sh [FOLDER]        deploy/secrets by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder="${1:-deploy/secrets}"
# The folder is closed; its files are readable so that the containers' user can read their mounts.
mkdir -p "$folder" && chmod 700 "$folder"

random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }
make_secret() { # name, value
  if [ ! -s "$folder/$1" ]; then
    printf '%s' "$2" > "$folder/$1"
    chmod 444 "$folder/$1"
    echo "made $folder/$1"
  fi
}

for role in owner embedder retriever memory orchestrator maintenance; do
  make_secret "db_${role}_password" "$(random)"
done
# The retriever's worker has a second connection, for building indexes.
make_secret maintenance_dsn \
  "postgresql://nianlun_maintenance:$(cat "$folder/db_maintenance_password")@postgres:5432/nianlun"
make_secret service_key "nl_$(random)"
make_secret tenant_key "nl_$(random)"
make_secret grafana_password "$(random)"
echo "the key for callers is in $folder/tenant_key"
