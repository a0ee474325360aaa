#!/usr/bin/env bash
# kube-proxy 1.36 exits if it may not set nf_conntrack_max, for example in LXC.
# https://github.com/kubernetes/kubernetes/issues/141943
source "$(dirname "$0")/stage.sh"

pod web-1 10.244.1.10
serve_web web-1
apply web.yaml

tell "A host that is a container: its kernel settings are the host's business."
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
run sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400

tell "kube-relay starts, serves, and says what it could not have:"
start_relay --proxy-mode nftables
run asks client 10.96.0.80:80
run kube-relay status
