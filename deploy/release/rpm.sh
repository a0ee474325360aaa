#!/usr/bin/env bash
# A step of release.sh: the package for Fedora, RHEL and SUSE, by rpmbuild.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=package_files.sh
source "$here/package_files.sh"
directory=$1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Prints a script of the package: functions and a call. rpm expands % in scripts.
script() {
  tail -n +2 "$here/scripts/head.sh" | sed 's/%/%%/g'
  printf '%s\n' "$@"
}

# The scripts expand $1.
# shellcheck disable=SC2016
write_spec() {
  cat <<EOF
Name: kube-relay
Version: $(package_version)
Release: 1
Summary: Network agent for Kubernetes nodes, in place of kube-proxy
License: Apache-2.0
Group: System/Daemons
Packager: ${PACKAGE_MAINTAINER:-The kube-relay authors <maintainers@kube-relay.invalid>}
AutoReqProv: no
Requires: coreutils, findutils, grep, gzip, sed, libc.so.6(GLIBC_$(needed_glibc "$root/usr/bin/kube-relay"))(64bit), libgcc_s.so.1()(64bit)
Requires: (iproute or iproute2)
Requires(post): /usr/sbin/useradd
Recommends: (nftables or iptables), (procps-ng or procps), conntrack-tools, kmod
Suggests: bird, ipset, ipvsadm

%description
kube-relay makes the Services of a Kubernetes cluster work on a node, by rules
of the kernel or without them. It also enforces NetworkPolicies, assigns and
announces load balancer addresses, and routes between pods. A folder of
manifests can take the place of a cluster.

The package starts no service. Choose kube-relay.service for the modes in which
the kernel forwards packets, or kube-relay-userspace.service for the mode that
needs neither root nor packet filter rules.

%install
cp -a $root/. %{buildroot}

%post
$(script 'if [ "$1" -gt 1 ]; then after_upgrade; else after_installation; fi')

%preun
$(script '[ "$1" -gt 0 ] || before_removal')

%postun
$(script '[ "$1" -gt 0 ] || remove_links' '[ "$1" -gt 0 ] || after_removal')

%files
%config(noreplace) /etc/default/kube-relay
$(cd "$root" && find etc/kube-relay usr/share/doc/kube-relay -type d -printf '%%dir "/%p"\n' | sort)
$(cd "$root" && find usr ! -type d -printf '"/%p"\n' | sort)
EOF
}

for machine in $MACHINES; do
  root=$work/$machine
  copy_package_files "$directory" "$machine" "$root"
  install -D -m 0644 "$directory/completion/kube-relay.zsh" \
    "$root/usr/share/zsh/site-functions/_kube-relay"
  same_date "$root"
  write_spec >"$work/kube-relay.spec"
  # Nothing is stripped: the executable has a payload. It is compressed already.
  rpmbuild -bb --quiet --target "$machine-linux" \
    --define "_topdir $work/rpmbuild" --define "_rpmdir $work" \
    --define "_rpmfilename $machine.rpm" --define '__os_install_post %{nil}' \
    --define 'debug_package %{nil}' --define '_build_id_links none' \
    --define '_binary_payload w1.gzdio' --define '_buildhost kube-relay' \
    --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
    "$work/kube-relay.spec"
  mv -- "$work/$machine.rpm" "$directory/kube-relay_${VERSION}_$machine.rpm"
done
