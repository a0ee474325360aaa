/**
 * Load balancer addresses on a real link: two nodes, and a router that keeps what it has learned.
 */
import { assert, assertEquals } from "@std/assert";
import { permissionFlags } from "../../lib/os/permissions.ts";
import type { Layer2Request } from "../support/drivers/layer2_driver.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { withFolder } from "../support/with_folder.ts";
import {
  manifestText,
  rawEndpointSlice,
  rawLoadBalancerService,
} from "../support/builders/raw_objects.ts";

/** Two nodes on the bridge of a router that keeps what it has learned. */
interface Layer2Scene extends AsyncDisposable {
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
async function createLayer2Scene(): Promise<Layer2Scene> {
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
async function holds(node: Namespace, address: string): Promise<boolean> {
  return (await node.ip("addr show dev eth0")).includes(`${address}/`);
}

const test = testNeeding("layer 2 on a real link", [
  ...netnsRequirements(),
  program("arping"),
  program("ndisc6"),
]);

/** For each family: an address of the pool, one of the node, and one of another network. */
const FAMILIES = [
  { family: "IPv4", vip: "192.168.9.50", node: "192.168.9.2", elsewhere: "198.51.100.7" },
  { family: "IPv6", vip: "fd09::50", node: "fd09::2", elsewhere: "fd00:5::7" },
] as const;

/** The data plane in a namespace, as a process of its own with the product's permissions. */
class Node {
  readonly #process: LineProcess;

  constructor(namespace: Namespace, family: string) {
    const file = new URL("../support/drivers/layer2_driver.ts", import.meta.url);
    const flags = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];
    this.#process = namespace.startDeno(file, [family], { flags });
  }

  // deno-lint-ignore no-explicit-any -- JSON
  async ask(request: Layer2Request): Promise<any> {
    await this.#process.writeLine(JSON.stringify(request));
    return JSON.parse(await this.#process.nextLine());
  }

  // deno-lint-ignore no-explicit-any -- JSON
  hold(...addresses: string[]): Promise<any> {
    return this.ask({ do: "sync", addresses });
  }

  async kill(): Promise<void> {
    await this.#process.kill();
  }
}

for (const { family, vip, node: nodeAddress, elsewhere } of FAMILIES) {
  test(`Layer2DataPlane: foreign addresses and other networks are refused with the reason (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const node = new Node(scene.first, family);
    const before = await scene.first.ip("addr show dev eth0");
    const { quarantined } = await node.hold(nodeAddress, elsewhere, vip);
    assertEquals(quarantined, [
      {
        key: nodeAddress,
        reason: `${nodeAddress} is an address of eth0 that kube-relay did not add; ` +
          "remove it there or from the pool",
      },
      {
        key: elsewhere,
        reason: `no interface has a network with ${elsewhere}; add one, or name interfaces for ` +
          "the pool",
      },
    ]);
    assert(await holds(scene.first, vip), "the others are held");
    await node.hold(nodeAddress);
    assertEquals(await scene.first.ip("addr show dev eth0"), before, "nothing foreign changes");
    const named = await node.ask({
      do: "sync",
      addresses: [elsewhere],
      interfaces: ["eth7", "eth0"],
    });
    assertEquals(named.quarantined, []);
    assert(await holds(scene.first, elsewhere), "on the interface that was named");
  });

  test(`Layer2DataPlane: of many addresses, a few are asked about at a time (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const [first, second] = [new Node(scene.first, family), new Node(scene.second, family)];
    const many = Array.from({ length: 40 }, (_, index) => `${vip.slice(0, -2)}${index + 10}`);
    await first.hold(...many);
    const last = many.at(-1)!;
    await second.hold(last);
    const ask = (): Promise<string[]> => first.ask({ do: "findConflicts" });
    const turns = [await ask(), await ask(), await ask()];
    assertEquals(turns.flat(), [last], "found once in three turns, which cover all");
    await second.hold(...many);
    // A busy machine may be too slow for single answers.
    await eventually(
      "one turn finds all, once there is an answer",
      async () => `${(await ask()).sort()}` === `${many.toSorted()}`,
    );
  });

  test(`Layer2DataPlane: a second owner is found, and cleanup removes only own addresses (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const [first, second] = [new Node(scene.first, family), new Node(scene.second, family)];
    await first.hold(vip);
    assertEquals(await first.ask({ do: "findConflicts" }), []);
    await second.hold(vip);
    // A busy machine may be too slow for a single answer.
    await eventually(
      "the second owner is found",
      async () => `${await first.ask({ do: "findConflicts" })}` === vip,
    );
    const before = await second.ask({ do: "previewCleanup" });
    assertEquals(before.removed, [`address ${vip} on eth0`]);
    await second.ask({ do: "cleanup" });
    assert(await holds(scene.first, vip), "on the other node");
    await second.kill();
    assertEquals(await holds(scene.second, vip), false);
    assert(await holds(scene.second, family === "IPv4" ? "192.168.9.3" : "fd09::3"));
  });

  test(`Layer2DataPlane: an address leaves an interface without a link for another one of the network (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const { router, first } = scene;
    const network = family === "IPv4" ? "192.168.9.0/24" : "fd09::/64";
    const node = new Node(first, family);
    const links = () => node.ask({ do: "links", interfaces: [] });
    assertEquals(await links(), [{ network, device: "eth0" }]);
    await node.hold(vip);
    await scene.learn(vip);
    await router.ip("link set node0 down");
    await eventually(
      "the link is lost",
      async () => (await links())[0].obstacle === "no-carrier",
    );
    const { quarantined } = await node.hold(vip);
    assertEquals(quarantined, [{
      key: vip,
      reason: `no interface can answer for ${vip}: its interface eth0 has no carrier`,
    }]);
    // A second interface in the same network.
    await router.ip(`link add other type veth peer name eth1 netns ${first.name}`);
    await router.ip("link set other master br0 up");
    await first.ipBatch([
      `addr add ${family === "IPv4" ? "192.168.9.4/24" : "fd09::4/64 nodad"} dev eth1`,
      "link set eth1 up",
    ]);
    await eventually(
      "it has a link",
      async () =>
        (await links()).some(({ device, obstacle }: Record<string, string>) =>
          device === "eth1" && obstacle === undefined
        ),
    );
    await eventually("the other interface has it", async () => {
      const report = await node.hold(vip);
      return report.quarantined.length === 0 &&
        (await first.ip("addr show dev eth1")).includes(`${vip}/`);
    });
    assertEquals(await holds(first, vip), false, "the first interface does not have it");
    await eventually("the router knows the second interface", async () => {
      const link = /link\/ether (\S+)/.exec(await first.ip("link show eth1"))![1]!;
      return (await router.ip(`neigh show ${vip} dev br0`)).includes(link);
    });
  });

  test(`Layer2DataPlane: an own interface in the same network is no other machine, a foreign one is (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const { router, first, second } = scene;
    await router.ip(`link add other type veth peer name eth1 netns ${first.name}`);
    await router.ip("link set other master br0 up");
    await first.ipBatch([
      `addr add ${family === "IPv4" ? "192.168.9.4/24" : "fd09::4/64 nodad"} dev eth1`,
      "link set eth1 up",
    ]);
    const node = new Node(first, family);
    await node.hold(vip);
    const ask = (): Promise<string[]> => node.ask({ do: "findConflicts" });
    // The kernel answers for any address of the node by any interface.
    for (let turn = 0; turn < 3; turn++) assertEquals(await ask(), []);
    await second.ip(
      `addr add ${vip}/${family === "IPv4" ? "24" : "64 nodad"} dev eth0`,
    );
    await eventually("the foreign machine is found", async () => `${await ask()}` === vip);
  });

  test(`Layer2DataPlane: an interface without ARP, as of a tunnel, answers for nothing (${family})`, async () => {
    await using scene = await createLayer2Scene();
    const node = new Node(scene.first, family);
    assertEquals((await node.hold(vip)).quarantined, []);
    // A device that takes the flag may lose the addresses of IPv6 meanwhile.
    await scene.first.ip("link set eth0 arp off");
    assertEquals(await node.ask({ do: "links", interfaces: [] }), []);
    const { quarantined } = await node.hold(vip);
    assertEquals(quarantined.map(({ key }: Record<string, string>) => key), [vip]);
    await node.kill();
  });
}

test("kube-relay answers for load balancer addresses on a link, and once it is killed, nobody does", () =>
  withFolder(async (folder) => {
    await using scene = await createLayer2Scene();
    const vips = FAMILIES.map(({ vip }) => vip);
    const service = rawLoadBalancerService("web", {
      clusterIP: "10.96.0.7",
      clusterIPs: ["10.96.0.7", "fd00:96::7"],
      ipFamilies: ["IPv4", "IPv6"],
      ipFamilyPolicy: "RequireDualStack",
      ports: [{ port: 80, protocol: "TCP", targetPort: 8080 }],
    });
    const status = { loadBalancer: { ingress: vips.map((ip) => ({ ip })) } };
    const slices = [["IPv4", "192.168.9.1"], ["IPv6", "fd09::1"]].map(([family, address]) =>
      rawEndpointSlice("web", {
        ...{ suffix: family!, addressType: family! },
        endpoints: [{ address: address!, nodeName: "elsewhere" }],
        ports: [{ name: "", port: 8080, protocol: "TCP" }],
      })
    );
    await Deno.mkdir(`${folder}/manifests`);
    await Deno.writeTextFile(
      `${folder}/manifests/web.yaml`,
      manifestText([{ ...service, status }, ...slices]),
    );
    const relay = RelayProcess.start(scene.first, {
      folder,
      args: [
        ...["--routing", `--manifests=${folder}/manifests`, "--hostname-override=node-a"],
        ...["--mode=userspace", "--address-mode=none", "--conntrack-max-per-core=0"],
        "--load-balancer-pools=192.168.9.48-192.168.9.90,fd09::48-fd09::90",
      ],
    });
    for (const vip of vips) {
      await eventually(`it has ${vip}`, () => holds(scene.first, vip)).catch((cause) => {
        throw new Error(relay.log, { cause });
      });
      await scene.learn(vip);
    }
    await relay.kill();
    for (const vip of vips) {
      await eventually(`${vip} has expired`, async () => !await holds(scene.first, vip));
    }
  }));
