#!/usr/bin/env bash
# Packs the Helm chart: OUTPUT_DIR/kube-relay-VERSION.tgz. It needs no helm, whose `helm package` writes
# the time of the build.
#
# Usage: deploy/release/chart.sh OUTPUT_DIR
set -euo pipefail
export LC_ALL=C
(($# == 1)) || {
  printf 'usage: deploy/release/chart.sh OUTPUT_DIR\n' >&2
  exit 2
}
output=$(realpath -- "$1")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../chart"
version=$(sed -n 's/^version: //p' kube-relay/Chart.yaml)
archive=$output/kube-relay-$version.tgz
tar --create --format=gnu --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
  --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX kube-relay | gzip -9n >"$archive"
printf 'chart.sh: made %s\n' "$archive"
