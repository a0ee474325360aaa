/** Service addresses on a real kernel, by the real `ip`. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type {
  AcquiredAddress,
  WantedAddress,
} from "../../backends/userspace/addresses/addresses.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { serviceKey } from "../../lib/proxy/service_port_name.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type {
  AcquiredEntries,
  AddressesDescription,
  AddressesRequest,
} from "../support/drivers/addresses_driver.ts";
import { createClusterTopology } from "../support/stages/cluster_topology.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { testNeeding } from "../support/requirement.ts";

const test = testNeeding("Service addresses on a real kernel", netnsRequirements());
const PORT = 8080;

/** The differences between the families. */
const PLAN = {
  IPv4: {
    range: parseCidr("10.96.0.0/16"),
    vips: ["10.96.0.1", "10.96.0.2", "10.96.0.3"],
    external: "203.0.113.77",
  },
  IPv6: {
    range: parseCidr("fd00:96::/112"),
    vips: ["fd00:96::1", "fd00:96::2", "fd00:96::3"],
    external: "fd00:5::77",
  },
};

/** Drops the right to change the network, which root in a container often has not. */
const WITHOUT_NET_ADMIN = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];

interface DriverOptions {
  readonly family: IpFamily;
  readonly folder: string;
  readonly mode?: string;
  readonly by?: readonly string[];
}

/** The code under test, as a process of its own in a namespace, with the product's own permissions. */
class Driver {
  readonly #process: LineProcess;
  constructor(namespace: Namespace, { family, folder, mode = "auto", by = [] }: DriverOptions) {
    const file = new URL("../support/drivers/addresses_driver.ts", import.meta.url);
    this.#process = namespace.startDeno(file, [family, folder, mode], {
      flags: [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"],
      by,
    });
  }
  async ask(request: AddressesRequest): Promise<unknown> {
    await this.#process.writeLine(JSON.stringify(request));
    return JSON.parse(await this.#process.nextLine());
  }
  /** Acquires cluster IPs, or external ones where `role` says so. */
  async acquire(
    addresses: readonly string[],
    role: WantedAddress["role"] = "ClusterIP",
  ): Promise<Record<string, AcquiredAddress>> {
    const wanted = addresses.map((text) => ({
      address: parseIpAddress(text),
      role,
      service: serviceKey({ namespace: "ns1", name: `svc-${text}` }),
    }));
    return Object.fromEntries(await this.ask({ do: "acquire", wanted }) as AcquiredEntries);
  }
  async release(...addresses: string[]): Promise<unknown> {
    return await this.ask({ do: "release", addresses: addresses.map(parseIpAddress) });
  }
  async describe(): Promise<AddressesDescription> {
    return await this.ask({ do: "describe" }) as AddressesDescription;
  }
  async kill(): Promise<void> {
    await this.#process.kill();
  }
}

/** A node with one link to a peer, a foreign address on `lo`, and a folder for the record. */
interface Scene extends AsyncDisposable {
  readonly node: Namespace;
  readonly folder: string;
  driver(options: Omit<DriverOptions, "folder">): Driver;
  /** All addresses, local routes and the switch, as text. */
  snapshot(): Promise<string>;
  /** The addresses of `lo`, without those that every machine has. */
  lo(): Promise<string[]>;
}

const FOREIGN = ["10.96.0.200/32", "fd00:96::c8/128"];

async function createScene(): Promise<Scene> {
  const node = await Namespace.create("node");
  const folder = await Deno.makeTempDir();
  await node.ipBatch([
    "link add eth0 type bridge",
    "addr add 192.168.7.1/24 dev eth0",
    "addr add 2001:db8:7::1/64 dev eth0",
    "link set eth0 up",
    "route add default via 192.168.7.254",
    "route add default via 2001:db8:7::fe",
    ...FOREIGN.map((address) => `addr add ${address} dev lo`),
    "route add local 10.200.0.0/16 dev lo",
  ]);
  await eventually("the kernel has the local routes of IPv6 addresses", async () => {
    const routes = await node.ip("-6 route show table local type local");
    return ["2001:db8:7::1 dev eth0", "fd00:96::c8 dev lo", "fe80::"]
      .every((route) => routes.includes(route));
  });
  return {
    node,
    folder,
    driver: (options) => new Driver(node, { ...options, folder: `${folder}/run` }),
    async snapshot() {
      const parts = [
        await node.ip("addr show"),
        await node.ip("-4 route show table all"),
        await node.ip("-6 route show table all"),
        await node.output("sysctl", ["net.ipv6.ip_nonlocal_bind", "net.ipv4.ip_nonlocal_bind"]),
      ];
      // The kernel takes this mark from a new address in its own time.
      return parts.join("\n").replaceAll(" tentative", "");
    },
    async lo() {
      const text = await node.ip("-o addr show dev lo");
      const found = text.trimEnd().split("\n").map((line) => line.split(/\s+/)[3] ?? "");
      return found.filter((text) => !["127.0.0.1/8", "::1/128", ...FOREIGN].includes(text)).sort();
    },
    async [Symbol.asyncDispose]() {
      await node[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

test("IPv6: an address that the kernel refuses is named with its reason; the others are added", async () => {
  await using scene = await createScene();
  const driver = scene.driver({ family: "IPv6" });
  await driver.ask({ do: "start" });
  const found = await driver.acquire(["fd00:96::1", "ff02::77", "fd00:96::2"]);
  const refused = found["ff02::77"];
  assert(refused?.kind === "unavailable", JSON.stringify(refused));
  assertStringIncludes(refused.reason, "multicast");
  assertEquals(await scene.lo(), ["fd00:96::1/128", "fd00:96::2/128"]);
});

for (const family of IP_FAMILIES) {
  const { range, vips, external } = PLAN[family];
  const [one = "", two = ""] = vips;
  const host = family === "IPv4" ? 32 : 128;
  test(`${family}: a foreign address is used, and never removed`, async () => {
    await using scene = await createScene();
    const before = await scene.snapshot();
    const foreign = family === "IPv4" ? ["10.96.0.200", "10.200.3.4"] : ["fd00:96::c8"];
    const own = family === "IPv4" ? "192.168.7.1" : "2001:db8:7::1";
    const driver = scene.driver({ family });
    await driver.ask({ do: "start" });
    for (const found of Object.values(await driver.acquire([...foreign, own], "LoadBalancer"))) {
      assertEquals(found.kind, "local");
    }
    assertEquals(await driver.release(...foreign, own), 0);
    await driver.ask({ do: "releaseUnclaimed" });
    assertEquals(await driver.ask({ do: "cleanup" }), { removed: [], failed: [] });
    assertEquals(await scene.snapshot(), before);
  });
  test(`${family}: an AnyIP route: sockets bind, a restart adopts it, cleanup removes it`, async () => {
    await using scene = await createScene();
    const before = await scene.snapshot();
    const demand = { serviceCidrs: [range], count: 3 };
    const first = scene.driver({ family, mode: "anyip" });
    await first.ask({ do: "start" });
    await first.ask({ do: "configure", ...demand });
    const found = await first.acquire([one, two, external]);
    assertEquals(Object.values(found).map(({ kind }) => kind), ["local", "local", "local"]);
    assertEquals(await scene.lo(), [`${external}/${host}`]);
    const listen = [one, two, external].map((address) => ({ address, port: PORT }));
    await using _server = await startEchoServer(scene.node, { name: "vips", listen });
    const client = ProbeClient.start(scene.node);
    for (const { address } of listen) {
      for (const protocol of ["TCP", "UDP"] as const) {
        assertEquals(await client.who({ protocol, address, port: PORT }), "vips", address);
      }
    }
    const { summary, warnings } = await first.describe();
    assertStringIncludes(summary, range);
    assertStringIncludes(warnings.join("\n"), "NetworkPolicies");
    await first.kill();
    const second = scene.driver({ family, mode: "anyip" });
    await second.ask({ do: "start" });
    await second.ask({ do: "configure", ...demand });
    assertEquals((await second.acquire([one]))[one]?.kind, "local");
    await second.ask({ do: "releaseUnclaimed" });
    assertEquals(await scene.lo(), []);
    assertEquals(await client.who({ protocol: "TCP", address: one, port: PORT }), "vips");
    await second.kill();
    const { removed } = await scene.driver({ family }).ask({ do: "cleanup" }) as {
      removed: string[];
    };
    assertEquals(removed[0], `local route for ${range}`);
    assertEquals(removed.length, family === "IPv4" ? 1 : 2, "IPv6 has the sysctl as well");
    assertEquals(await scene.snapshot(), before);
  });
  test(`${family}: going to a route and back breaks no connection and refuses none`, async () => {
    await using scene = await createScene();
    const driver = scene.driver({ family });
    await driver.ask({ do: "start" });
    await driver.acquire([one, two]);
    await driver.ask({ do: "releaseUnclaimed" });
    const listen = [one, two].map((address) => ({ address, port: PORT }));
    await startEchoServer(scene.node, { name: "vips", listen });
    const target = { protocol: "TCP", address: one, port: PORT } as const;
    const steady = ProbeClient.start(scene.node);
    const kept = [
      await steady.open(target),
      await steady.open({ ...target, protocol: "UDP" }),
    ];
    const crowd = ProbeClient.start(scene.node);
    await crowd.startLoad(
      listen.flatMap(({ address, port }) =>
        (["TCP", "UDP"] as const).map((protocol) => ({
          protocol,
          address,
          port,
          expect: ["vips"],
        }))
      ),
      { perSecond: 200 },
    );
    for (const count of Array.from({ length: 20 }, (_, i) => i % 2 === 0 ? 2_000 : 10)) {
      await driver.ask({ do: "configure", serviceCidrs: [range], count });
      const each = count > 1_000 ? [] : [`${one}/${host}`, `${two}/${host}`];
      assertEquals(await scene.lo(), each);
      for (const line of kept) assertEquals(await line.who(), "vips", `at ${count}`);
    }
    const report = await crowd.stopLoad();
    assertEquals(report.failures, 0, report.examples.join("\n"));
    assert(report.attempts >= 20, `only ${report.attempts} attempts`);
  });
  test(`${family}: addresses of Services never become the source of the node's own connections`, async () => {
    await using cluster = await createClusterTopology();
    const folder = await Deno.makeTempDir();
    try {
      const { client, node, serviceCidr, clusterIp, externalIp } = ADDRESSES[family];
      const listen = [{ address: client, port: PORT }];
      await startEchoServer(cluster.client, { name: "outside", listen });
      const probe = ProbeClient.start(cluster.node);
      const target = { protocol: "TCP", address: client, port: PORT } as const;
      for (const mode of ["each", "anyip"]) {
        const driver = new Driver(cluster.node, { family, folder, mode });
        await driver.ask({ do: "start" });
        await driver.ask({ do: "configure", serviceCidrs: [serviceCidr], count: 2 });
        await driver.acquire([clusterIp]);
        await driver.acquire([externalIp], "ExternalIP");
        const answer = await probe.probe(target);
        assertEquals(answer.kind === "answered" && answer.by.peer, node, JSON.stringify(answer));
        assertEquals((await probe.probe({ ...target, protocol: "UDP" })).kind, "answered");
        await driver.kill();
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
  test(`${family}: nor do they if the outgoing interface has no address of its own`, async () => {
    await using scene = await createScene();
    const [range, far] = family === "IPv4"
      ? ["198.51.100.0/24", "198.51.100.9"]
      : ["fd00:77::/64", "fd00:77::9"];
    await scene.node.ipBatch([
      "link add tunnel type bridge",
      "link set tunnel up",
      // The foreign addresses, which are global ones, would be chosen here.
      ...FOREIGN.map((address) => `addr del ${address} dev lo`),
      `route add ${range} dev tunnel`,
    ]);
    const sourceOf = async () =>
      (await scene.node.ip(`-j route get ${far}`)).match(/"prefsrc":"[^"]*"/)?.[0];
    const before = await sourceOf();
    assert(before !== undefined);
    const driver = scene.driver({ family });
    await driver.ask({ do: "start" });
    await driver.acquire(vips);
    assertEquals((await scene.lo()).length, 3);
    assertEquals(await sourceOf(), before);
  });
  test(`${family}: probe() leaves the machine as it was, whatever it may do`, async () => {
    await using scene = await createScene();
    const before = await scene.snapshot();
    for (const by of [[], WITHOUT_NET_ADMIN]) {
      const results = await scene.driver({ family, by }).ask({ do: "probe" }) as {
        available: boolean;
      }[];
      const may = by.length === 0;
      assertEquals(results.map(({ available }) => available), [may, may, true]);
      assertEquals(await scene.snapshot(), before);
    }
  });
}
