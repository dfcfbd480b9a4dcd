#!/usr/bin/env bash
# Moves every collection of a tenant to another embedding model, without a pause for searches:
#
#   NIANLUN_KEY=nl_... NIANLUN_RETRIEVER_TARGET=localhost:50052 \
#     deploy/scripts/change-model.sh MODEL
#
# First every collection is embedded with the new model beside the old one; only when all of them
# are, each is switched. `nianlun reembed COLLECTION --rollback` takes one back.
# shellcheck source=deploy/scripts/common.sh
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || die "usage: change-model.sh MODEL"
model="$1"
listed="$(nianlun collections list --plain)"
[ -n "$listed" ] || die "this tenant has no collections"
collections=()
while IFS=$'\t' read -r collection current; do
  [ "$current" = "$model" ] || collections+=("$collection")
done <<< "$listed"
for collection in "${collections[@]}"; do
  nianlun reembed --hold -- "$collection" "$model" || die "$collection could not be embedded; nothing was switched"
done
for collection in "${collections[@]}"; do
  nianlun reembed --switch -- "$collection" "$model" || die "$collection could not be switched"
done
echo "${#collections[@]} collections moved to $model"
