#!/usr/bin/env bash
# Prints the self-extracting form of kube-relay: deploy/self_extracting.sh with the names and checksums
# of its payload filled in, then the payload. compile.sh calls it.
#
# Usage: deploy/pack.sh VERSION MACHINE DENO BUNDLE FLAG… >kube-relay
# BUNDLE is a directory of scripts; main.js is the entry point.
set -euo pipefail
export LC_ALL=C

version=$1 machine=$2 deno=$3 bundle=$4
flags=${*:5}
# These values become text of a shell script.
if [[ $flags =~ [^[:alnum:]\ =,._:/-] ]]; then
  printf "Cannot pack kube-relay with flag text '%s': expected letters, digits and =,._:/-\n" \
    "${BASH_REMATCH[0]}" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
contents=''
for file in "$deno" "$bundle"/*.js; do
  name=$(basename -- "$file")
  # The kernel names a process after the file that it runs.
  [[ $file != "$deno" ]] || name=kube-relay
  gzip -nc -- "$file" >"$work/packed"
  cat "$work/packed" >>"$work/payload"
  # A backslash before the end of line, for sed.
  contents+="$name $(sha256sum <"$file" | cut -d' ' -f1) $(stat -c %s "$work/packed")\\"$'\n'
done
# The name of the directory to unpack into; it depends on the content.
id=v$version-$(sha256sum <<<"$contents" | cut -c1-16)

sed -e "s|@VERSION@|v$version|" -e "s|@MACHINE@|$machine|" -e "s|@ID@|$id|" \
  -e "s|@CONTENTS@|${contents%\\?}|" -e "s|@PAYLOAD_SIZE@|$(stat -c %s "$work/payload")|" \
  -e "s|@FLAGS@|$flags|" \
  "$(dirname -- "${BASH_SOURCE[0]}")/self_extracting.sh"
cat "$work/payload"
