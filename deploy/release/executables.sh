#!/usr/bin/env bash
# A step of release.sh: the executable for each machine, as kube-relay-MACHINE. Those that are already
# there are kept. The short name is that of this machine's executable, which ./compile.sh replaces.
set -euo pipefail
directory=$1
native=$directory/kube-relay-$(uname -m)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

for machine in $MACHINES; do
  file=$directory/kube-relay-$machine
  if [[ $file == "$native" && -e $directory/kube-relay ]]; then ln -f -- "$directory/kube-relay" "$file"; fi
  if [[ -e $file ]]; then continue; fi
  ./compile.sh --target "$machine-unknown-linux-gnu" --output "$directory"
  # The release is not complete yet.
  rm -f -- "$directory/SHA256SUMS"
  if [[ $file == "$native" ]]; then ln -f -- "$directory/kube-relay" "$file"; fi
done
said=$(env -i PATH=/usr/bin:/bin CACHE_DIRECTORY="$work" RUNTIME_DIRECTORY="$work" "$native" --version)
[[ $said == "kube-relay v$VERSION "* ]] || {
  printf "executables.sh: %s is '%s', but the release is v%s: remove it, or leave out --reuse\n" \
    "$native" "$said" "$VERSION" >&2
  exit 1
}
