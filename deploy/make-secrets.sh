#!/usr/bin/env bash
# Makes the secrets that docker-compose.yml reads, once; existing ones are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# The folder is closed; its files are readable so that the containers' user can read their mounts.
mkdir -p secrets && chmod 700 secrets

random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }
make_secret() { # name, prefix
  if [ ! -s "secrets/$1" ]; then
    printf '%s%s' "$2" "$(random)" > "secrets/$1"
    chmod 444 "secrets/$1"
    echo "made deploy/secrets/$1"
  fi
}

for service in embedder retriever memory orchestrator; do
  make_secret "db_${service}_password" ""
done
make_secret db_owner_password ""
make_secret service_key nl_
make_secret tenant_key nl_
echo "the key for callers is in deploy/secrets/tenant_key"
