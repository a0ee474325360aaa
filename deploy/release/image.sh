#!/usr/bin/env bash
# Builds the image of kube-relay as an OCI archive, without a container engine:
# OUTPUT_DIR/kube-relay_VERSION_ARCH.oci.tar. From the same commit and the same versions of Debian's
# packages it makes the same bytes.
#
# Usage: deploy/release/image.sh [--check] OUTPUT_DIR [MACHINE…]
#   --check     only reports what this machine lacks to build the image
#   OUTPUT_DIR  has what compile.sh made: kube-relay or kube-relay-MACHINE, and THIRD-PARTY-LICENSES
#   MACHINE     x86_64 or aarch64 (default: IMAGE_MACHINES, else MACHINES, else this machine)
#
# Environment:
#   IMAGE_MACHINES the same as the arguments, for a release without an image of some machine
#   IMAGE_NAME     the name without a tag (default: registry.example/kube-relay)
#   SOURCE_URL     where the source is, for the label of that name
#   DEBIAN_MIRROR  where Debian's packages are (default: that of this machine's apt)
#
# Needs root and the Debian packages mmdebstrap, umoci, jq and git; for another machine also
# qemu-user-static with binfmt-support, because Debian's packages run programs when they are installed.
set -euo pipefail
umask 022
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

# Debian 13, because the nft of Debian 12 crashes where a newer one on the node has written a map: the
# kernel's tables are shared with the node, so the image has a current nft.
readonly suite=trixie
# The tools in lib/os/tools.ts; kmod, with which iptables-legacy loads a table; and BIRD, which a
# second container of the same image runs. The package iptables has both variants: kube-relay detects
# that of the node from the existing rules.
readonly packages='bird2 conntrack coreutils iproute2 ipset iptables iputils-arping ipvsadm kmod ndisc6 nfacct nftables procps util-linux'
# Half of the root is documents and the Perl that ndisc6 needs for a script which is not used.
readonly left_out=(
  '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/info/*' '/usr/share/locale/*'
  '/usr/share/bash-completion/*' '/usr/share/perl/*' '/usr/lib/*/perl/*' '/usr/lib/*/libperl.so*'
)

fail() {
  printf 'image.sh: %s\n' "$*" >&2
  exit 1
}

# choose MACHINE: sets what depends on it. Fails if its image cannot be made.
choose() {
  local tool
  machine=$1
  case $machine in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) fail "unknown machine '$machine': expected x86_64 or aarch64" ;;
  esac
  [[ $(id -u) == 0 ]] || fail "needs root, which the files of the image belong to"
  for tool in mmdebstrap umoci jq git; do
    command -v "$tool" >/dev/null || fail "needs the Debian package $tool"
  done
  # It starts programs of that machine, as dpkg will.
  if [[ $machine != "$(uname -m)" ]] && ! arch-test "$arch" >/dev/null 2>&1; then
    fail "cannot run programs of $machine: install arch-test, qemu-user-static and binfmt-support," \
      "or leave its image out by IMAGE_MACHINES"
  fi
}

# The short name is the newer one: ./compile.sh writes no other for this machine.
find_executable() {
  executable=$output/kube-relay-$machine
  if [[ $machine == "$(uname -m)" && -f $output/kube-relay ]]; then executable=$output/kube-relay; fi
  [[ -f $executable ]] || fail "$executable does not exist: run ./compile.sh first"
}

# Makes the tar file of the packages. What is removed names this machine or the time of the build.
debian_layer() {
  local mirror option signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  local -a options=(--dpkgopt='path-include=/usr/share/doc/*/copyright')
  # apt fills the place in, mmdebstrap the folder.
  # shellcheck disable=SC2016
  mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)}
  mirror=${mirror:-http://deb.debian.org/debian}
  # dpkg uses the last pattern that matches.
  for option in "${left_out[@]}"; do options=(--dpkgopt="path-exclude=$option" "${options[@]}"); done
  # shellcheck disable=SC2016
  mmdebstrap --quiet --variant=essential --architectures="$arch" --include="${packages// /,}" \
    "${options[@]}" \
    --customize-hook='cd "$1" && rm -rf -- etc/apt/sources.list etc/hostname etc/resolv.conf etc/*- var/cache/apt \
      var/cache/debconf/*-old var/cache/ldconfig/* var/lib/dpkg/*-old var/log/* var/lib/apt' \
    "$suite" "$work/debian.tar" \
    "deb $signed $mirror $suite main" "deb $signed $mirror $suite-updates main" \
    "deb $signed ${mirror%/debian}/debian-security $suite-security main"
}

# Makes the tar file of kube-relay. The self-extracting form unpacks now instead of on each node, where
# the root cannot be written. What it has unpacked is then left out of the executable. V8's cache
# depends on the processor and is not the same twice.
relay_layer() {
  local root=$work/root payload
  mkdir "$root" && tar -C "$root" -xf "$work/debian.tar"
  install -D -m 0755 "$executable" "$root/usr/local/bin/kube-relay"
  # Existing manifests that call kube-proxy run it by the second name.
  ln -s kube-relay "$root/usr/local/bin/kube-proxy"
  install -D -m 0644 -t "$root/usr/share/doc/kube-relay" LICENSE "$output/THIRD-PARTY-LICENSES"
  # shellcheck disable=SC2016
  env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/run" && mkdir "$1/run/kube-relay" &&
      chmod 0700 "$1/run/kube-relay" && exec chroot "$1" kube-relay --version' sh "$root" ||
    fail "the executable does not run in the image"
  mkdir -p "$root/var/cache/kube-relay"
  payload=$(sed -n "/^main /q; s/^readonly payload_size='\(.*\)'$/\1/p" "$executable")
  if [[ -n $payload ]]; then
    truncate --size="-$payload" "$root/usr/local/bin/kube-relay"
    find "$root/var/cache/kube-relay" -path '*/v8/*' -delete
  fi
  pack "$work/relay.tar" -C "$root" usr/local/bin usr/share/doc/kube-relay var/cache/kube-relay
}

# pack FILE ARGUMENT…: a tar file that depends on nothing but the content.
pack() {
  tar --create --file="$1" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner "${@:2}"
}

# add_layer FILE TEXT
add_layer() {
  umoci raw add-layer --image "$image" --history.created="$created" --history.created_by="$2" "$1"
}

make_image() {
  choose "$1"
  find_executable
  created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  version=$(jq -r .version deno.json)
  name=${IMAGE_NAME:-registry.example/kube-relay}:$version
  rm -rf -- "${work:?}"/*
  image=$work/layout:$version
  debian_layer
  relay_layer
  umoci init --layout "$work/layout"
  umoci new --image "$image"
  add_layer "$work/debian.tar" "Debian $suite: $packages"
  add_layer "$work/relay.tar" "kube-relay $version"
  local label=--config.label=org.opencontainers.image
  # The kubelet makes /run/kube-relay readable for all. Named in this way it is used all the same.
  umoci config --image "$image" --no-history --created="$created" --os=linux --architecture="$arch" \
    --config.entrypoint=/usr/local/bin/kube-relay \
    --config.env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --config.env=RUNTIME_DIRECTORY=/run/kube-relay \
    "$label.title=kube-relay" "$label.description=Network agent for Kubernetes nodes" \
    "$label.version=$version" "$label.revision=$(git rev-parse HEAD)" "$label.created=$created" \
    "$label.licenses=Apache-2.0" ${SOURCE_URL:+"$label.source=$SOURCE_URL"}
  umoci gc --layout "$work/layout"
  # The name by which containerd imports it.
  jq --compact-output --arg name "$name" \
    '.manifests[0].annotations += {"io.containerd.image.name": $name}' \
    "$work/layout/index.json" >"$work/index.json"
  mv "$work/index.json" "$work/layout/index.json"

  local archive=kube-relay_${version}_$arch.oci.tar
  # Readable for all, whatever the umask.
  chmod -R a+rX "$work/layout"
  pack "$work/$archive" -C "$work/layout" .
  mv "$work/$archive" "$output/$archive"
  printf 'image.sh: made %s: %s, %s, %d MB\n' "$output/$archive" "$name" \
    "$(jq -r '.manifests[0].digest' "$work/layout/index.json")" \
    $(($(stat -c %s "$output/$archive") / 1000000))
}

main() {
  local check=false
  if [[ ${1-} == --check ]]; then check=true && shift; fi
  (($# > 0)) || fail "usage: deploy/release/image.sh [--check] OUTPUT_DIR [MACHINE…]"
  local machines=${IMAGE_MACHINES:-${MACHINES:-$(uname -m)}}
  output=$(realpath -- "$1")
  shift
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  export SOURCE_DATE_EPOCH
  work=$(mktemp -d)
  trap 'rm -rf -- "$work"' EXIT
  # One word per machine.
  # shellcheck disable=SC2086,SC2206
  if (($# == 0)); then set -- $machines; fi
  # What cannot be made is said before minutes have passed.
  for machine in "$@"; do
    choose "$machine"
    [[ $check == true ]] || find_executable
  done
  if [[ $check == true ]]; then return; fi
  for machine in "$@"; do make_image "$machine"; done
}

main "$@"
