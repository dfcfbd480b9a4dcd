#!/usr/bin/env bash
# New passwords for the roles that services connect as (the owner's own is not touched):
#
#   NIANLUN_MIGRATE_DSN=postgresql://postgres@localhost/nianlun \
#     deploy/scripts/rotate-db-passwords.sh deploy/secrets
#
# Open connections go on; new ones need the new password. So restart the services right afterwards:
# docker compose up -d --force-recreate, or a rollout in Kubernetes.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || die "usage: rotate-db-passwords.sh FOLDER_OF_SECRETS"
need_dsn
folder="$1"
[ -d "$folder" ] || die "$folder is no folder"
random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }

# All files are written before the database hears of any: a full disk must not lock services out.
for role in embedder retriever memory orchestrator maintenance; do
  file="$folder/db_${role}_password"
  [ -e "$file" ] || die "there is no $file"
  (umask 077 && random > "$file.new")
  export "NIANLUN_${role^^}_DB_PASSWORD=$(cat "$file.new")"
done
nianlun migrate --set-passwords
for role in embedder retriever memory orchestrator maintenance; do
  file="$folder/db_${role}_password"
  chmod --reference="$file" "$file.new"
  mv "$file.new" "$file"
done
dsn="$folder/maintenance_dsn"
if [ -e "$dsn" ]; then
  (umask 077 && sed -E "s#://nianlun_maintenance:[^@]*@#://nianlun_maintenance:$(cat "$folder/db_maintenance_password")@#" "$dsn" > "$dsn.new")
  chmod --reference="$dsn" "$dsn.new"
  mv "$dsn.new" "$dsn"
fi
echo "passwords changed; restart the services now"
