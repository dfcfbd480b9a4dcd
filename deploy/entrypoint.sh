#!/bin/sh
# Secrets come as files: NAME_FILE=/run/secrets/x becomes NAME=<content of the file>.
set -eu
secrets=/run/secrets
for name in $(env | sed -n 's/^\([A-Z][A-Z0-9_]*\)_FILE=.*/\1/p'); do
  case "$name" in NIANLUN_TLS_*) continue ;; esac # settings that name files themselves
  path="$(printenv "${name}_FILE")"
  case "$path" in "$secrets"/*) ;; *) continue ;; esac
  if [ ! -r "$path" ]; then
    echo "nianlun: the secret $path (from ${name}_FILE) cannot be read; see deploy/make-secrets.sh" >&2
    exit 1
  fi
  value="$(cat "$path")"
  export "$name=$value"
  unset "${name}_FILE"
done
exec "$@"
