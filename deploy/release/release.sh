#!/usr/bin/env bash
# Makes everything that a release consists of: `deno task release`. docs/releasing.md describes it.
#
# Each step is a program in this folder. It gets the directory of the release as its argument, writes
# its files there, and finds VERSION, SOURCE_DATE_EPOCH and MACHINES in its environment. The same
# commit results in the same bytes.
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
  local documented
  VERSION=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' deno.json)
  documented=$(sed -n 's/^## \[\([^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
  [[ $VERSION == "$documented" ]] ||
    fail "deno.json has version '$VERSION', but CHANGELOG.md begins with '$documented': make them equal"
  if grep -qxF "## [$VERSION] - unreleased" CHANGELOG.md; then
    say "CHANGELOG.md calls $VERSION unreleased: write its date there before you publish these files"
  fi
  [[ -n ${SOURCE_DATE_EPOCH-} ]] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) ||
    fail "the date of the commit is not known: set SOURCE_DATE_EPOCH"
  if [[ -n $(git status --porcelain 2>/dev/null) ]]; then
    say "there are changes that are not committed: another machine will not get the same files"
  fi
}

# Writes SHA256SUMS of all files, and its signature.
sign() {
  (
    cd "$directory"
    find . -type f ! -name 'SHA256SUMS*' -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS
  )
  if [[ -z ${RELEASE_SIGNING_KEY-} ]]; then
    say "not signed: RELEASE_SIGNING_KEY is not set"
    return
  fi
  ssh-keygen -q -Y sign -f "$RELEASE_SIGNING_KEY" -n kube-relay-release "$directory/SHA256SUMS"
}

main() {
  local step
  parse_arguments "$@"
  find_version
  export VERSION SOURCE_DATE_EPOCH MACHINES="x86_64 aarch64" LC_ALL=C TZ=UTC
  umask 022
  mkdir -p "$directory"
  # A directory without SHA256SUMS is not complete. Files of another version must not be published.
  rm -f -- "$directory"/SHA256SUMS* "$directory"/kube-relay_*
  if [[ $reuse == false ]]; then rm -f -- "$directory"/kube-relay{,-x86_64,-aarch64}; fi
  for step in "${steps[@]}"; do
    if [[ $skipped == *" $step "* ]]; then continue; fi
    say "$step"
    "deploy/release/$step" "$directory"
  done
  sign
  say "made $directory:"
  (cd "$directory" && find . -type f -printf '%s %P\n' | sort -k 2)
}

main "$@"
