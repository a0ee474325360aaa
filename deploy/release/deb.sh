#!/usr/bin/env bash
# A step of release.sh: the package for Debian and Ubuntu, by dpkg-deb.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=package_files.sh
source "$here/package_files.sh"
directory=$1
maintainer=${PACKAGE_MAINTAINER:-The kube-relay authors <maintainers@kube-relay.invalid>}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Prints the size as dpkg-gencontrol counts it, which no file system changes: KiB of each file, and one
# for each folder and link.
installed_size() {
  find "$root" -mindepth 1 -path "$root/DEBIAN" -prune -o -printf '%y %s\n' |
    awk '{ size += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print size }'
}

write_control() {
  cat <<EOF
Package: kube-relay
Version: $(package_version)
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(installed_size)
Depends: iproute2, libc6 (>= $(needed_glibc "$root/usr/bin/kube-relay")), libgcc-s1, passwd
Recommends: conntrack, kmod, nftables | iptables, procps
Suggests: bird2, ipset, iptables, ipvsadm, iputils-arping, ndisc6, nftables
Section: net
Priority: optional
Description: network agent for Kubernetes nodes, in place of kube-proxy
 kube-relay makes the Services of a Kubernetes cluster work on a node, by
 rules of the kernel or without them. It also enforces NetworkPolicies,
 assigns and announces load balancer addresses, and routes between pods.
 A folder of manifests can take the place of a cluster.
 .
 The package starts no service. Choose kube-relay.service for the modes in
 which the kernel forwards packets, or kube-relay-userspace.service for the
 mode that needs neither root nor packet filter rules.
EOF
}

write_documents() {
  local documents=$root/usr/share/doc/kube-relay
  printf 'kube-relay (%s) stable; urgency=medium\n\n  * CHANGELOG.md has the changes.\n\n -- %s  %s\n' \
    "$(package_version)" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$documents/changelog.gz"
  rm -- "$documents/LICENSE"
  unlink_missing "$documents"
  cat >"$documents/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: kube-relay
Comment: The executable contains Deno and other software. Their licences are
 in THIRD-PARTY-LICENSES, in this folder.

Files: *
Copyright: 2026 The kube-relay authors
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of the
 Apache License, Version 2.0.
EOF
}

for machine in $MACHINES; do
  architecture=$(debian_architecture "$machine") root=$work/$machine
  copy_package_files "$directory" "$machine" "$root"
  install -D -m 0644 "$directory/completion/kube-relay.zsh" \
    "$root/usr/share/zsh/vendor-completions/_kube-relay"
  write_documents
  # What follows the script in the self-extracting form is no shell.
  install -d "$root/usr/share/lintian/overrides"
  echo 'kube-relay: shell-script-fails-syntax-check [usr/bin/kube-relay]' \
    >"$root/usr/share/lintian/overrides/kube-relay"
  mkdir "$root/DEBIAN"
  write_control >"$root/DEBIAN/control"
  echo /etc/default/kube-relay >"$root/DEBIAN/conffiles"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  for script in postinst prerm postrm; do
    cat "$here"/scripts/{head,"$script"}.sh >"$root/DEBIAN/$script"
    chmod 0755 "$root/DEBIAN/$script"
  done
  same_date "$root"
  # The executable is compressed already. Every release of Debian in use can read gzip.
  dpkg-deb --root-owner-group -Zgzip -z1 --build "$root" \
    "$directory/kube-relay_${VERSION}_$architecture.deb"
done
