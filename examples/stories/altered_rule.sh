#!/usr/bin/env bash
# One altered rule sends traffic to the wrong endpoint, although every object is correct.
# https://github.com/cloudnativelabs/kube-router/issues/2059
source "$(dirname "$0")/stage.sh"

pod web-1 10.244.1.10
pod web-old 10.244.1.99
serve_web web-1
serve_web web-old
apply web.yaml
start_relay --proxy-mode nftables
run asks client 10.96.0.80:80

tell "A script of another program changes one element of the rules. Every object in the cluster is right," \
  "and clients get the pages of last year:"
nft -f - <<'EOF'
delete element ip kube-relay endpoints { 10.96.0.80 . tcp . 80 . 0x80000000 }
add element ip kube-relay endpoints { 10.96.0.80 . tcp . 80 . 0x80000000 : 10.244.1.99 . 8080 }
EOF
run asks client 10.96.0.80:80
run kube-relay explain outside shop/web
run kube-relay diff --family ipv4

tell "kube-relay would repair it at its next check; repair it now:"
run kube-relay diff --family ipv4 --repair
run asks client 10.96.0.80:80
