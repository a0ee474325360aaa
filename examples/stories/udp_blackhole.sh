#!/usr/bin/env bash
# UDP metrics go to a deleted pod for 13 hours.
# https://github.com/kubernetes/kubernetes/issues/139628
source "$(dirname "$0")/stage.sh"

pod app 10.244.1.5
pod statsd-1 10.244.1.11
pod statsd-2 10.244.1.12
for name in statsd-1 statsd-2; do
  ip netns exec $name socat -u UDP-RECV:8125 OPEN:/run/$name,creat,append &
done
apply statsd.yaml
start_relay --proxy-mode nftables

# One flow that never pauses, gets no answer and ignores errors, like those of statsd clients.
while sleep 0.1; do
  echo 'orders:1|c' | ip netns exec app socat -u STDIN UDP-SENDTO:10.96.0.125:8125,sourceport=40125
done &

show_flows() { run conntrack -L -p udp --orig-dst 10.96.0.125 2>&1; }
no_flow_to() { ! show_flows | grep -F "src=$1"; }

tell "An app sends metrics to metrics/statsd. This is what the kernel remembers of them:"
wait_for test -s /run/statsd-1
show_flows

tell "statsd is scaled to zero. The flow has no endpoint any more, although it never pauses:"
apply statsd.yaml 's/^endpoints:.*/endpoints: []/'
wait_for no_flow_to 10.244.1.11
show_flows

tell "And back to one, with another address:"
apply statsd.yaml 's/10.244.1.11/10.244.1.12/'
wait_for test -s /run/statsd-2
show_flows
run kube-relay status --changes --filter metrics/statsd
run kube-relay trace 10.244.1.5 metrics/statsd
