/**
 * A small cluster of network namespaces, with the addresses of `address_plan.ts`, both families.
 *
 * ```
 *  local pods ─┐                      ┌─ remote pods
 *  (cni0) node ┤                      ├ (cni0) other node
 *              └───────── LAN ────────┘
 *                          │ router ── client, blocked client
 * ```
 *
 * Pods reach everything through their node, even each other: they have no subnet. The other node has
 * no proxy; what its pods send goes by this one, so that an answer to what was rewritten here comes
 * back here. The router sends the ranges of Services, external and load balancer addresses to the
 * node, as an upstream router or a load balancer would.
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { ADDRESSES, type FamilyAddresses } from "../builders/address_plan.ts";
import { Namespace } from "./netns.ts";
import { NetworkScript } from "./network_script.ts";

/** The namespaces of the cluster. Disposing of it removes all of them and what runs in them. */
export interface ClusterTopology extends AsyncDisposable {
  /** The namespace in which the proxy under test runs. */
  readonly node: Namespace;
  readonly otherNode: Namespace;
  readonly router: Namespace;
  /** Outside of the cluster, behind the router. */
  readonly client: Namespace;
  /** The same, outside of the clients' range of the address plan. */
  readonly blockedClient: Namespace;
  readonly localPods: readonly [Namespace, Namespace];
  readonly remotePods: readonly [Namespace, Namespace];
  /** Pods that are clients only. */
  readonly localPodClient: Namespace;
  readonly remotePodClient: Namespace;
}

/** Addresses that are not in the address plan, and prefix lengths. */
export const WIRING = {
  IPv4: {
    lan: 24,
    router: "192.168.0.1",
    otherNode: "192.168.0.3",
    podSubnet: 24,
    pod: 32,
    gateways: { local: "10.180.0.254", remote: "10.180.1.254" },
    pods: { local: "10.180.0.0/24", remote: "10.180.1.0/24" },
    second: 24,
    clientGateway: "203.0.113.126",
    blockedGateway: "203.0.113.254",
    client: 25,
    viaNode: ["172.30.0.0/16", "192.168.99.0/24", "1.2.3.0/24", "192.168.1.0/24"],
  },
  IPv6: {
    lan: 64,
    router: "2001:db8::1",
    otherNode: "2001:db8::3",
    podSubnet: 120,
    pod: 128,
    gateways: { local: "fd00:10::afe", remote: "fd00:10::bfe" },
    pods: { local: "fd00:10::a00/120", remote: "fd00:10::b00/120" },
    second: 64,
    clientGateway: "2001:db8:113::7e",
    blockedGateway: "2001:db8:113::fe",
    client: 121,
    viaNode: [
      "fd00:172:30::/112",
      "2001:db8:99::/64",
      "2001:db8:1::/64",
      "2001:db8:2::/64",
    ],
  },
};

type Wiring = (typeof WIRING)[IpFamily];

const FAMILIES = ["IPv4", "IPv6"] as const;

/** Calls for each family, with its addresses and wiring. */
function forFamilies<T>(make: (plan: FamilyAddresses, wiring: Wiring) => T): T[] {
  return FAMILIES.map((family) => make(ADDRESSES[family], WIRING[family]));
}

/** Makes the cluster. */
export async function createClusterTopology(): Promise<ClusterTopology> {
  const all = await Namespace.createAll([
    ...["node", "other-node", "router", "client", "blocked", "pod-a1", "pod-a2"],
    ...["pod-b1", "pod-b2", "pod-a99", "pod-b99"],
  ]);
  const next = () => all[made++]!;
  let made = 0;
  const topology = {
    node: next(),
    otherNode: next(),
    router: next(),
    client: next(),
    blockedClient: next(),
    localPods: [next(), next()] as const,
    remotePods: [next(), next()] as const,
    localPodClient: next(),
    remotePodClient: next(),
  };
  const script = new NetworkScript();
  joinLan(script, topology);
  joinPods(script, topology);
  joinClients(script, topology);
  addRoutes(script, topology);
  const dispose = () => Namespace.removeAll(all);
  await script.run().catch(async (error) => {
    await dispose();
    throw error;
  });
  return { ...topology, [Symbol.asyncDispose]: dispose };
}

type Namespaces = Omit<ClusterTopology, typeof Symbol.asyncDispose>;

function joinLan(
  script: NetworkScript,
  { node, otherNode, router }: Namespaces,
): void {
  for (const namespace of [node, otherNode, router]) {
    script.sysctl(
      namespace,
      "net.ipv4.ip_forward=1",
      "net.ipv6.conf.all.forwarding=1",
      // Packets leave by the interface that they came by, which is meant so.
      "net.ipv4.conf.all.send_redirects=0",
      "net.ipv4.conf.default.send_redirects=0",
    );
    // Packets are for iptables when they are routed. Kernels without br_netfilter have no such setting.
    script.sysctlIfKnown(
      namespace,
      "net.bridge.bridge-nf-call-iptables=0",
      "net.bridge.bridge-nf-call-ip6tables=0",
    );
  }
  script.bridge({
    namespace: router,
    device: "lan",
    addresses: forFamilies((_, wiring) => `${wiring.router}/${wiring.lan}`),
  });
  script.link({
    namespace: node,
    device: "eth0",
    addresses: forFamilies((plan, wiring) => `${plan.node}/${wiring.lan}`),
  }, { namespace: router, device: "to-node", bridge: "lan" });
  script.ip(
    node,
    "link add eth1 type bridge",
    ...forFamilies((plan, { second }) => `addr add ${plan.nodeSecond}/${second} dev eth1`),
    "link set eth1 up",
  );
  script.link({
    namespace: otherNode,
    device: "eth0",
    addresses: forFamilies((_, wiring) => `${wiring.otherNode}/${wiring.lan}`),
  }, { namespace: router, device: "to-other", bridge: "lan" });
}

function joinPods(script: NetworkScript, topology: Namespaces): void {
  const { localPods, remotePods, localPodClient, remotePodClient } = topology;
  for (const side of ["local", "remote"] as const) {
    const node = side === "local" ? topology.node : topology.otherNode;
    const pods = side === "local"
      ? [...localPods, localPodClient]
      : [...remotePods, remotePodClient];
    script.bridge({
      namespace: node,
      device: "cni0",
      addresses: forFamilies((_, { gateways, podSubnet }) => `${gateways[side]}/${podSubnet}`),
    });
    for (const [index, namespace] of pods.entries()) {
      const addresses = forFamilies((plan, wiring) => {
        const inOrder = side === "local"
          ? [...plan.localPods, plan.localPodClient]
          : [...plan.remotePods, plan.remotePodClient];
        return `${inOrder[index]}/${wiring.pod}`;
      });
      script.link(
        { namespace, device: "eth0", addresses },
        { namespace: node, device: `veth${index}`, bridge: "cni0" },
      );
      // A pod that knew a shorter way would answer past its node.
      script.sysctl(namespace, "net.ipv6.conf.eth0.accept_redirects=0");
      script.ip(
        namespace,
        ...forFamilies((_, { gateways }) => [
          `route add ${gateways[side]} dev eth0`,
          `route add default via ${gateways[side]}`,
        ]).flat(),
      );
      // A bridge returns no frame to the port it came from, such as that of a pod to itself.
      script.ip(node, `link set veth${index} type bridge_slave hairpin on`);
    }
  }
}

function joinClients(
  script: NetworkScript,
  { router, client, blockedClient }: Namespaces,
): void {
  const ends = [
    { namespace: client, device: "to-client", who: "client", gateway: "clientGateway" },
    {
      namespace: blockedClient,
      device: "to-blocked",
      who: "blockedClient",
      gateway: "blockedGateway",
    },
  ] as const;
  for (const { namespace, device, who, gateway } of ends) {
    script.link({
      namespace,
      device: "eth0",
      addresses: forFamilies((plan, wiring) => `${plan[who]}/${wiring.client}`),
    }, {
      namespace: router,
      device,
      addresses: forFamilies((_, wiring) => `${wiring[gateway]}/${wiring.client}`),
    });
    script.ip(namespace, ...forFamilies((_, wiring) => `route add default via ${wiring[gateway]}`));
  }
}

function addRoutes(
  script: NetworkScript,
  { node, otherNode, router }: Namespaces,
): void {
  script.ip(node, ...forFamilies((_, { router }) => `route add default via ${router}`));
  script.ip(otherNode, ...forFamilies((_, { router }) => `route add default via ${router}`));
  script.ip(
    node,
    ...forFamilies((_, wiring) => `route add ${wiring.pods.remote} via ${wiring.otherNode}`),
  );
  script.ip(
    otherNode,
    ...forFamilies((plan, wiring) => `route add ${wiring.pods.local} via ${plan.node}`),
  );
  for (const [index, node] of forFamilies((plan) => plan.node).entries()) {
    const flag = index === 0 ? "-4" : "-6";
    script.ipWithOptions(otherNode, `${flag} rule add iif cni0 lookup 100`);
    script.ipWithOptions(otherNode, `${flag} route add default via ${node} table 100`);
  }
  script.ip(
    router,
    ...forFamilies((plan, wiring) => `route add ${wiring.pods.local} via ${plan.node}`),
    ...forFamilies((_, wiring) => `route add ${wiring.pods.remote} via ${wiring.otherNode}`),
    ...forFamilies((plan, { viaNode }) =>
      viaNode.map((range) => `route add ${range} via ${plan.node}`)
    ).flat(),
  );
}
