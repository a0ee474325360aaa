#!/usr/bin/env bash
# Prints the self-extracting form of kube-relay: deploy/self_extracting.sh with what it is told of
# its payload filled in, then that payload. compile.sh calls it.
#
# Usage: deploy/pack.sh VERSION MACHINE DENO APP.JS FLAG… >kube-relay
set -euo pipefail
export LC_ALL=C

version=$1 machine=$2 deno=$3 app=$4
flags=${*:5}
# They become text of a shell script.
if [[ $flags =~ [^[:alnum:]\ =,._:/-] ]]; then
  printf "Cannot pack kube-relay with flag text '%s': expected letters, digits and =,._:/-\n" \
    "${BASH_REMATCH[0]}" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
gzip -nc -- "$deno" >"$work/deno.gz"
gzip -nc -- "$app" >"$work/app.js.gz"

sha256_of() { sha256sum <"$1" | cut -d' ' -f1; }
deno_sha256=$(sha256_of "$deno")
app_sha256=$(sha256_of "$app")
# Names the directory that it unpacks into: other content, other directory.
id=v$version-$(printf '%s %s' "$deno_sha256" "$app_sha256" | sha256sum | cut -c1-16)

sed -e "s|@VERSION@|v$version|" -e "s|@MACHINE@|$machine|" -e "s|@ID@|$id|" \
  -e "s|@DENO_SHA256@|$deno_sha256|" -e "s|@APP_SHA256@|$app_sha256|" \
  -e "s|@DENO_PACKED_SIZE@|$(stat -c %s "$work/deno.gz")|" \
  -e "s|@APP_PACKED_SIZE@|$(stat -c %s "$work/app.js.gz")|" \
  -e "s|@FLAGS@|$flags|" \
  "$(dirname -- "${BASH_SOURCE[0]}")/self_extracting.sh"
cat "$work/deno.gz" "$work/app.js.gz"
