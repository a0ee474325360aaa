/**
 * Two nodes on a link, and a router that keeps what it has learned.
 *
 * @module
 */
import { eventually } from "../eventually.ts";
import { Namespace } from "./netns.ts";

/** Two nodes on the bridge of a router that keeps what it has learned. */
export interface Layer2Scene extends AsyncDisposable {
  readonly router: Namespace;
  readonly first: Namespace;
  readonly second: Namespace;
  /** Makes the router learn an address by a packet. */
  learn(address: string): Promise<void>;
}

/** Puts the nodes on the bridge of the router. */
async function connect(router: Namespace, nodes: readonly Namespace[]): Promise<void> {
  // A bridge that takes the address of a new port forgets its neighbours.
  await router.ip("link add br0 address 02:00:00:00:00:01 type bridge");
  await router.ipBatch([
    "addr add 192.168.9.1/24 dev br0",
    "addr add fd09::1/64 dev br0",
    "link set br0 up",
  ]);
  // A router that asks again only after an hour.
  await router.sysctl(
    "net.ipv4.neigh.br0.base_reachable_time_ms=3600000",
    "net.ipv6.neigh.br0.base_reachable_time_ms=3600000",
  );
  for (const [index, node] of nodes.entries()) {
    await router.ip(`link add node${index} type veth peer name eth0 netns ${node.name}`);
    await router.ip(`link set node${index} master br0 up`);
    await node.ipBatch([
      `addr add 192.168.9.${index + 2}/24 dev eth0`,
      `addr add fd09::${index + 2}/64 dev eth0`,
      "link set eth0 up",
      "route add default via 192.168.9.1",
      "route add default via fd09::1 dev eth0",
    ]);
  }
}

/** Makes the namespaces; the nodes are 192.168.9.2 and .3 on `eth0`, the router is 192.168.9.1. */
export async function createLayer2Scene(): Promise<Layer2Scene> {
  const [router, first, second] = await Namespace.createAll(["router", "first", "second"]) as [
    Namespace,
    Namespace,
    Namespace,
  ];
  const nodes = [first, second];
  try {
    await connect(router, nodes);
  } catch (error) {
    await Namespace.removeAll([router, first, second]);
    throw error;
  }
  return {
    router,
    first,
    second,
    async learn(address) {
      const target = address.includes(":") ? `UDP6:[${address}]:9` : `UDP4:${address}:9`;
      await router.run("sh", ["-c", `echo x | socat -u - ${target}`]);
      await eventually(
        `the router knows ${address}`,
        async () => (await router.ip(`neigh show ${address} dev br0`)).includes("lladdr"),
      );
    },
    async [Symbol.asyncDispose]() {
      await Namespace.removeAll([router, first, second]);
    },
  };
}

/** Whether a node has an address. */
export async function holds(node: Namespace, address: string): Promise<boolean> {
  return (await node.ip("addr show dev eth0")).includes(`${address}/`);
}
