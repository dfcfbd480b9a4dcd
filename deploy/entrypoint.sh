#!/bin/sh
# Secrets come as files: NAME_FILE=/run/secrets/x becomes NAME=<content of the file>.
set -eu
for entry in $(env | sed -n 's/^\([A-Z][A-Z0-9_]*_FILE\)=\/run\/secrets\/.*/\1/p'); do
  eval "path=\$$entry"
  if [ ! -r "$path" ]; then
    echo "nianlun: the secret $path (from $entry) cannot be read; see deploy/make-secrets.sh" >&2
    exit 1
  fi
  name="${entry%_FILE}"
  value="$(cat "$path")"
  export "$name=$value"
  unset "$entry"
done
exec "$@"
