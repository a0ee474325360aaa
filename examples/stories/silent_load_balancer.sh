#!/usr/bin/env bash
# A load balancer address does not answer on some nodes. Where it answers, pods see the node instead
# of the client. https://github.com/k3s-io/klipper-lb/issues/14
source "$(dirname "$0")/stage.sh"

pod_on_node_b site-1
serve_web site-1
apply site.yaml
start_relay --proxy-mode nftables

tell "shop/site runs, on node-b, but a client whose packets come to node-a waits in vain:"
run asks client 203.0.113.80:80
run kube-relay explain 192.0.2.9 203.0.113.80:80

tell "Would externalTrafficPolicy Cluster help? Nothing is applied yet; any machine can tell:"
mkdir /run/next
sed 's/Policy: Local/Policy: Cluster/' site.yaml >/run/next/site.yaml
run kube-relay dump /run/node-a.json
run kube-relay diff --from /run/node-a.json --manifests /run/next

tell "It is applied. Clients are served, and the pod takes them all for node-a. Why?"
apply site.yaml 's/Policy: Local/Policy: Cluster/'
wait_for answers 203.0.113.80:80
run asks client 203.0.113.80:80
run kube-relay explain 192.0.2.9 203.0.113.80:80
