#!/usr/bin/env bash
# kube-proxy is gone, and its rules still send packets to deleted pods.
# https://github.com/kubernetes/kubernetes/issues/119265
source "$(dirname "$0")/stage.sh"

pod web-1 10.244.1.10
serve_web web-1
apply web.yaml

# Leftover rules of kube-proxy, next to rules of the kubelet and of a user.
iptables-restore <<'EOF'
*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SEP-IVKGWPPMQZ7GRKCW - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-67NZLRHBNDSAWJRO - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -s 192.0.2.77/32 -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.80/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-67NZLRHBNDSAWJRO
-A KUBE-SVC-67NZLRHBNDSAWJRO -j KUBE-SEP-IVKGWPPMQZ7GRKCW
-A KUBE-SEP-IVKGWPPMQZ7GRKCW -p tcp -m tcp -j DNAT --to-destination 10.244.1.66:8080
COMMIT
EOF

tell "shop/web runs, but clients wait in vain: the rules still have a pod of last week."
run asks client 10.96.0.80:80

tell "What is that, and what would a take-over remove?"
run kube-relay cleanup --dry-run

tell "kube-relay serves first, and then takes kube-proxy's rules away, and no other:"
start_relay --proxy-mode nftables --takeover
theirs_are_gone() { ! iptables-save -t nat | grep KUBE-SERVICES; }
wait_for theirs_are_gone
run asks client 10.96.0.80:80
run iptables-save -t nat
