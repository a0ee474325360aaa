# Functions of the steps that make packages. Sourced, not run.
# shellcheck shell=bash

# Prints the name that Debian has for a machine.
debian_architecture() {
  case $1 in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
  esac
}

# Prints the version as dpkg and rpm sort it: 1.0.0~rc.1 is before 1.0.0. rpm refuses a '-'.
package_version() { echo "${VERSION/-/'~'}"; }

# unlink_missing DIRECTORY: leaves only the text of a link to a file that is not there, such as a source.
unlink_missing() {
  local page link
  find "$1" -name '*.md' | while read -r page; do
    { grep -oE '\]\([^)#:]+' "$page" || true; } | cut -c 3- | sort -u | while read -r link; do
      if [[ -e ${page%/*}/$link ]]; then continue; fi
      printf 's|\\[\\([^]]*\\)\\](%s\\(#[^)]*\\)\\?)|\\1|g\n' "${link//./\\.}"
    done | sed -zi -f - "$page"
  done
}

# copy_documents DIRECTORY: README.md and what it links to, at the same places.
copy_documents() {
  local file
  git ls-files -- README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs examples deploy |
    grep -vE '^deploy/(release|image)/|^examples/(demo|stories)/|\.(ts|sh)$|_notices' |
    while read -r file; do install -D -m 0644 -- "$file" "$1/$file"; done
  unlink_missing "$1"
}

# copy_package_files RELEASE MACHINE ROOT: the files of the package, below ROOT.
copy_package_files() {
  local release=$1 machine=$2 root=$3 unit documents=$3/usr/share/doc/kube-relay
  install -D -m 0755 "$release/kube-relay-$machine" "$root/usr/bin/kube-relay"
  # `kubectl kube-relay` runs a program of this name.
  ln -s kube-relay "$root/usr/bin/kubectl-kube_relay"
  for unit in deploy/*.service; do
    install -d "$root/usr/lib/systemd/system"
    # /usr/local belongs to the administrator.
    sed -e 's#/usr/local/bin/kube-relay#/usr/bin/kube-relay#' -e '/^#   install /d' "$unit" \
      >"$root/usr/lib/systemd/system/${unit##*/}"
  done
  install -D -m 0644 deploy/kube-relay.default "$root/etc/default/kube-relay"
  install -D -m 0644 deploy/kube-relay.modules.conf "$root/usr/lib/modules-load.d/kube-relay.conf"
  install -d "$root/etc/kube-relay/manifests"
  install -D -m 0644 "$release/completion/kube-relay.bash" \
    "$root/usr/share/bash-completion/completions/kube-relay"
  install -D -m 0644 "$release/completion/kube-relay.fish" \
    "$root/usr/share/fish/vendor_completions.d/kube-relay.fish"
  install -d "$root/usr/share/man/man8"
  gzip -9nc "$release/kube-relay.8" >"$root/usr/share/man/man8/kube-relay.8.gz"
  copy_documents "$documents"
  install -m 0644 "$release/THIRD-PARTY-LICENSES" "$release/kube-relay.spdx.json" "$documents/"
}

# Prints the oldest glibc that an executable's Deno runs with, which is unpacked as the first file of
# the self-extracting form.
needed_glibc() {
  local offset size
  if [[ $(head -c 2 "$1") == '#!' ]]; then
    size=$(sed -n "/^readonly contents=/{s/.* //p;q}" "$1")
    offset=$(sed -n "s/^readonly payload_size='\(.*\)'$/\1/p;/^readonly payload_size/q" "$1")
    tail -c "$offset" "$1" | head -c "$size" | gzip -dc
  else
    cat -- "$1"
  fi | grep -ao 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 | sed 's/GLIBC_//'
}

# same_date ROOT: gives all files the date of the release.
same_date() {
  find "$1" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
}
