#!/usr/bin/env bash
# Makes everything that a release consists of: `deno task release`. docs/releasing.md describes it.
#
# Each step is a program in this folder. It gets the directory of the release as its argument, writes
# its files there, and finds VERSION, SOURCE_DATE_EPOCH, MACHINES and IMAGE_MACHINES in its environment.
# The same commit results in the same bytes.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

readonly steps=(executables.sh tarballs.sh deb.sh rpm.sh image.sh chart.sh)

usage() {
  cat <<EOF
Usage: deno task release [--reuse] [--skip STEP]… [DIRECTORY]

Makes the files of a release in DIRECTORY (default: dist), then SHA256SUMS.
  --reuse  use the executables that DIRECTORY already has, for example from ./compile.sh
  --skip   leave a step out: ${steps[*]}

Environment:
  RELEASE_SIGNING_KEY  file of the SSH key that signs SHA256SUMS; without it nothing is signed
  IMAGE_MACHINES       the machines that get an image (default: this one, $(uname -m))
  SOURCE_DATE_EPOCH    the date of all files (default: that of the commit)
  PACKAGE_MAINTAINER   name and address in the packages
EOF
}

say() { printf 'release: %s\n' "$*"; }

fail() {
  printf 'release: %s\n' "$*" >&2
  exit "${status:-1}"
}

parse_arguments() {
  directory=dist reuse=false skipped=' '
  while (($# > 0)); do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --reuse) reuse=true ;;
      --skip)
        [[ " ${steps[*]} " == *" ${2-} "* ]] ||
          status=2 fail "unknown step '${2-}': expected one of ${steps[*]}"
        skipped+="$2 " && shift
        ;;
      -*) status=2 fail "unknown argument '$1': expected --reuse, --skip or a directory" ;;
      *) directory=$1 ;;
    esac
    shift
  done
  readonly directory skipped
}

# The packages carry the version of deno.json, and their users read about it in CHANGELOG.md.
find_version() {
  local documented other
  VERSION=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' deno.json)
  documented=$(sed -n 's/^## \[\([^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
  [[ $VERSION == "$documented" ]] ||
    fail "deno.json has version '$VERSION', but CHANGELOG.md begins with '$documented': make them equal"
  other=$(grep -nE '^(appV|v)ersion: |^ *image: .*/kube-relay:' \
    deploy/chart/kube-relay/Chart.yaml deploy/kubernetes/*.yaml | grep -vE ": ?${VERSION//./\\.}\$") || true
  [[ -z $other ]] || fail "deno.json has version '$VERSION'; change these lines to it:"$'\n'"$other"
  if grep -qxF "## [$VERSION] - unreleased" CHANGELOG.md; then
    say "CHANGELOG.md calls $VERSION unreleased: write its date there before you publish these files"
  fi
  [[ -n ${SOURCE_DATE_EPOCH-} ]] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) ||
    fail "the date of the commit is not known: set SOURCE_DATE_EPOCH"
  if [[ -n $(git status --porcelain 2>/dev/null) ]]; then
    say "there are changes that are not committed: another machine will not get the same files"
  fi
}

is_skipped() { [[ $skipped == *" $1 "* ]]; }

# need PROGRAM PACKAGE [STEP]
need() {
  if [[ -n ${3-} ]] && is_skipped "$3"; then return; fi
  command -v "$1" >/dev/null || fail "needs the Debian package $2${3:+, or --skip $3}"
}

# A missing tool or key is reported now instead of after minutes.
check_machine() {
  need git git
  need npm npm executables.sh
  need dpkg-deb dpkg-dev deb.sh
  need rpmbuild rpm rpm.sh
  is_skipped image.sh || deploy/release/image.sh --check "$directory" ||
    fail "cannot make the image: install what it needs, or --skip image.sh"
  if [[ -n ${RELEASE_SIGNING_KEY-} ]]; then
    need ssh-keygen openssh-client
    [[ -r $RELEASE_SIGNING_KEY ]] || fail "cannot read RELEASE_SIGNING_KEY, '$RELEASE_SIGNING_KEY'"
  fi
}

# Prints the names that files of a release may have.
names() {
  local machine
  printf '%s\n' THIRD-PARTY-LICENSES kube-relay{,.8,.spdx.json} completion/kube-relay.{bash,zsh,fish}
  for machine in $MACHINES; do
    printf '%s\n' "kube-relay-$machine" "kube-relay_${VERSION}_"{"linux_$machine.tar.gz","$machine.rpm"}
  done
  printf '%s\n' "kube-relay_${VERSION}_"{amd64,arm64}.{deb,oci.tar} "kube-relay-$VERSION.tgz"
}

# Writes SHA256SUMS and its signature. Both are renamed when they are complete.
sign() {
  local new=$directory/SHA256SUMS.new
  (cd "$directory" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort) >"$work/found"
  names | sort >"$work/names"
  comm -12 "$work/found" "$work/names" | (cd "$directory" && xargs -d '\n' sha256sum) >"$new"
  comm -23 "$work/found" "$work/names" | sed "s/^/release: not a file of the release: /"
  if [[ -n ${RELEASE_SIGNING_KEY-} ]]; then
    ssh-keygen -q -Y sign -f "$RELEASE_SIGNING_KEY" -n kube-relay-release "$new"
    mv -- "$new.sig" "$directory/SHA256SUMS.sig"
  else
    say "not signed: RELEASE_SIGNING_KEY is not set"
  fi
  mv -- "$new" "$directory/SHA256SUMS"
}

main() {
  local step
  parse_arguments "$@"
  find_version
  export VERSION SOURCE_DATE_EPOCH MACHINES="x86_64 aarch64" LC_ALL=C TZ=UTC
  # Debian's packages of another machine need programs that run its executables.
  export IMAGE_MACHINES=${IMAGE_MACHINES:-$(uname -m)}
  umask 022
  mkdir -p "$directory"
  check_machine
  work=$(mktemp -d)
  trap 'rm -rf -- "$work"' EXIT
  # A directory without SHA256SUMS is not complete. Files of another version must not be published.
  rm -f -- "$directory"/SHA256SUMS* "$directory"/kube-relay_* "$directory"/kube-relay-*.tgz
  if [[ $reuse == false ]]; then rm -f -- "$directory"/kube-relay{,-x86_64,-aarch64}; fi
  for step in "${steps[@]}"; do
    if is_skipped "$step"; then continue; fi
    say "$step"
    "deploy/release/$step" "$directory"
  done
  sign
  say "made $directory:"
  (cd "$directory" && find . -type f -printf '%s %P\n' | sort -k 2)
}

main "$@"
