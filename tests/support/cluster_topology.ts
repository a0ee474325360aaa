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
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { ADDRESSES, type FamilyAddresses } from "./address_plan.ts";
import { addBridge, link, Namespace } from "./netns.ts";

/** The namespaces of the cluster. Disposing of it removes all of them and what runs in them. */
export interface ClusterTopology extends AsyncDisposable {
  /** Where the proxy under test runs. */
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

/** Addresses that only the topology itself has, and prefix lengths. */
const WIRING = {
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
  // deno-lint-ignore no-undef -- the linter does not know it yet
  await using stack = new AsyncDisposableStack();
  const make = async (label: string) => stack.use(await Namespace.create(label));
  const topology = {
    node: await make("node"),
    otherNode: await make("other-node"),
    router: await make("router"),
    client: await make("client"),
    blockedClient: await make("blocked"),
    localPods: [await make("pod-a1"), await make("pod-a2")] as const,
    remotePods: [await make("pod-b1"), await make("pod-b2")] as const,
    localPodClient: await make("pod-a99"),
    remotePodClient: await make("pod-b99"),
  };
  await joinLan(topology);
  await joinPods(topology);
  await joinClients(topology);
  await addRoutes(topology);
  const made = stack.move();
  return { ...topology, [Symbol.asyncDispose]: () => made.disposeAsync() };
}

type Namespaces = Omit<ClusterTopology, typeof Symbol.asyncDispose>;

async function joinLan({ node, otherNode, router }: Namespaces): Promise<void> {
  for (const namespace of [node, otherNode, router]) {
    await namespace.sysctl(
      "net.ipv4.ip_forward=1",
      "net.ipv6.conf.all.forwarding=1",
      // Packets leave by the interface that they came by, which is meant so.
      "net.ipv4.conf.all.send_redirects=0",
      "net.ipv4.conf.default.send_redirects=0",
    );
    // Packets are for iptables when they are routed. Kernels without br_netfilter have no such setting.
    await namespace.output("sysctl", [
      "-qew",
      "net.bridge.bridge-nf-call-iptables=0",
      "net.bridge.bridge-nf-call-ip6tables=0",
    ]);
  }
  await addBridge({
    namespace: router,
    device: "lan",
    addresses: forFamilies((_, wiring) => `${wiring.router}/${wiring.lan}`),
  });
  await link({
    namespace: node,
    device: "eth0",
    addresses: forFamilies((plan, wiring) => `${plan.node}/${wiring.lan}`),
  }, { namespace: router, device: "to-node", bridge: "lan" });
  await node.ipBatch([
    "link add eth1 type bridge",
    ...forFamilies((plan, { second }) => `addr add ${plan.nodeSecond}/${second} dev eth1`),
    "link set eth1 up",
  ]);
  await link({
    namespace: otherNode,
    device: "eth0",
    addresses: forFamilies((_, wiring) => `${wiring.otherNode}/${wiring.lan}`),
  }, { namespace: router, device: "to-other", bridge: "lan" });
}

async function joinPods(topology: Namespaces): Promise<void> {
  const { localPods, remotePods, localPodClient, remotePodClient } = topology;
  for (const side of ["local", "remote"] as const) {
    const node = side === "local" ? topology.node : topology.otherNode;
    const pods = side === "local"
      ? [...localPods, localPodClient]
      : [...remotePods, remotePodClient];
    await addBridge({
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
      await link(
        { namespace, device: "eth0", addresses },
        { namespace: node, device: `veth${index}`, bridge: "cni0" },
      );
      // A pod that knew a shorter way would answer past its node.
      await namespace.sysctl("net.ipv6.conf.eth0.accept_redirects=0");
      await namespace.ipBatch(
        forFamilies((_, { gateways }) => [
          `route add ${gateways[side]} dev eth0`,
          `route add default via ${gateways[side]}`,
        ]).flat(),
      );
      // A bridge gives no frame back to where it came from, such as that of a pod to itself.
      await node.ip(`link set veth${index} type bridge_slave hairpin on`);
    }
  }
}

async function joinClients({ router, client, blockedClient }: Namespaces): Promise<void> {
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
    await link({
      namespace,
      device: "eth0",
      addresses: forFamilies((plan, wiring) => `${plan[who]}/${wiring.client}`),
    }, {
      namespace: router,
      device,
      addresses: forFamilies((_, wiring) => `${wiring[gateway]}/${wiring.client}`),
    });
    await namespace.ipBatch(forFamilies((_, wiring) => `route add default via ${wiring[gateway]}`));
  }
}

async function addRoutes({ node, otherNode, router }: Namespaces): Promise<void> {
  await node.ipBatch(forFamilies((_, { router }) => `route add default via ${router}`));
  await otherNode.ipBatch(forFamilies((_, { router }) => `route add default via ${router}`));
  await node.ipBatch(
    forFamilies((_, wiring) => `route add ${wiring.pods.remote} via ${wiring.otherNode}`),
  );
  await otherNode.ipBatch(
    forFamilies((plan, wiring) => `route add ${wiring.pods.local} via ${plan.node}`),
  );
  for (const [index, node] of forFamilies((plan) => plan.node).entries()) {
    const flag = index === 0 ? "-4" : "-6";
    await otherNode.ip(`${flag} rule add iif cni0 lookup 100`);
    await otherNode.ip(`${flag} route add default via ${node} table 100`);
  }
  await router.ipBatch([
    ...forFamilies((plan, wiring) => `route add ${wiring.pods.local} via ${plan.node}`),
    ...forFamilies((_, wiring) => `route add ${wiring.pods.remote} via ${wiring.otherNode}`),
    ...forFamilies((plan, { viaNode }) =>
      viaNode.map((range) => `route add ${range} via ${plan.node}`)
    ).flat(),
  ]);
}
