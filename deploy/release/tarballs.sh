#!/usr/bin/env bash
# A step of release.sh: a tarball for each machine, for installation by hand as deploy/README.md
# describes it.
set -euo pipefail
# shellcheck source=package_files.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/package_files.sh"
directory=$1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

for machine in $MACHINES; do
  name=kube-relay-$VERSION
  root=$work/$machine/$name
  copy_documents "$root"
  install -D -m 0755 "$directory/kube-relay-$machine" "$root/dist/kube-relay"
  cp -r -- "$directory"/{completion,kube-relay.8,THIRD-PARTY-LICENSES,kube-relay.spdx.json} "$root/dist/"
  tar --create --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=u+w,go=rX \
    --mtime="@$SOURCE_DATE_EPOCH" --directory="$work/$machine" "$name" |
    gzip -1n >"$directory/kube-relay_${VERSION}_linux_$machine.tar.gz"
done
