# shellcheck shell=bash
# A small cluster for a story. The script that sources this file is the node 'node-a'. An outside
# client, another node and the pods are separate network namespaces:
#
#     client 192.0.2.9 ---+--- 192.0.2.1 node-a 10.244.1.1 --- pods 10.244.1.x
#                         +--- 192.0.2.2 node-b, with the pod 10.244.2.10
#
# Everything is in namespaces of the script (network, mounts, processes). The machine is not changed,
# and the kernel removes everything when the script ends, even by SIGKILL.

set -euo pipefail
cd "$(dirname "$0")"

if [[ ${ON_STAGE-} != yes ]]; then
  if ((EUID != 0)); then
    echo "$0: has to be run as root, to make namespaces of its own" >&2
    exit 1
  fi
  KUBE_RELAY=$(cd "$OLDPWD" && realpath "$(command -v "${KUBE_RELAY:-kube-relay}")" 2>/dev/null) || {
    echo "$0: there is no '${KUBE_RELAY:-kube-relay}'; set KUBE_RELAY to the executable" >&2
    exit 1
  }
  export ON_STAGE=yes KUBE_RELAY
  exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$(basename "$0")"
fi
trap 'exit 130' INT TERM

kube-relay() { "$KUBE_RELAY" "$@"; }

tell() { printf '\n# %s\n' "$@"; }

# Prints a command as a user would type it, and runs it. Many commands are expected to fail.
run() {
  printf '\n$ %s\n' "$*"
  "$@" || printf '(exit code %d)\n' $?
}

# Waits until a command succeeds, for 20 s.
wait_for() {
  local deadline=$((SECONDS + 20))
  until "$@" &>/dev/null; do
    if ((SECONDS >= deadline)); then
      echo "$0: waited in vain for: $*" >&2
      cat /run/kube-relay.log >&2 || true
      exit 1
    fi
    sleep 0.1
  done
}

# plug NAME ADDRESS GATEWAY BRIDGE: adds a machine or a pod to a bridge of this node.
plug() {
  ip netns add "$1"
  ip link add "to-$1" type veth peer name eth0 netns "$1"
  ip link set "to-$1" master "$4" up
  ip -n "$1" link set lo up
  ip -n "$1" address add "$2" dev eth0
  ip -n "$1" link set eth0 up
  ip -n "$1" route add default via "$3"
}

# pod NAME ADDRESS: adds a pod to this node.
pod() { plug "$1" "$2/24" 10.244.1.1 cni0; }

# pod_on_node_b NAME: adds a pod with the address 10.244.2.10 to the other node.
pod_on_node_b() {
  plug "$1" 192.0.2.2/24 192.0.2.1 lan0
  ip -n "$1" address add 10.244.2.10/32 dev lo
  ip route add 10.244.2.0/24 via 192.0.2.2
}

# serve_web POD: the pod answers on TCP port 8080 with the client address that it sees.
serve_web() {
  # The shell that answers expands the variable.
  # shellcheck disable=SC2016
  ip netns exec "$1" socat TCP-LISTEN:8080,fork,reuseaddr \
    SYSTEM:'echo "'"$1"' answers a client that it sees as $SOCAT_PEERADDR"' &
  wait_for asks "$1" 127.0.0.1:8080
}

# asks NAME ADDRESS:PORT: sends a request from a client or a pod, and prints the answer, or the reason
# if there is none within 2 s.
asks() {
  ip netns exec "$1" socat -T 2 -u "TCP:$2,connect-timeout=2" STDOUT 2>&1 | sed 's/.*: //'
}

answers() { [[ $(asks client "$1") == *answers* ]]; }

# apply FILE [EDIT]: applies a manifest, edited by sed.
apply() {
  sed "${2-}" "$1" >"/run/$1"
  mv "/run/$1" "$manifests/"
}

# start_relay FLAG...: starts kube-relay on this node and waits until it serves.
start_relay() {
  kube-relay --manifests "$manifests" --hostname-override node-a \
    --cluster-cidr 10.244.0.0/16 "$@" 2>/run/kube-relay.log &
  wait_for has_status '"phase": "serving"'
}

# has_status TEXT: whether 'status --json' prints this text.
has_status() { kube-relay status --json | grep -F -- "$1"; }

# /run holds the sockets of kube-relay, the locks of its tools and the list of namespaces.
mount -t tmpfs tmpfs /run
manifests=/run/manifests
mkdir "$manifests"
ip link set lo up
ip link add cni0 type bridge
ip link add lan0 type bridge
ip address add 10.244.1.1/24 dev cni0
ip address add 192.0.2.1/24 dev lan0
ip link set cni0 up
ip link set lan0 up
ip route add default via 192.0.2.9
sysctl -qw net.ipv4.ip_forward=1
plug client 192.0.2.9/24 192.0.2.1 lan0
