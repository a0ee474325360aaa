/** Tests that a run takes up a changed block `routing` of its configuration file. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { collectionOf } from "./support/fakes/fake_api_store.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import {
  assigned,
  rawLoadBalancer,
  rawNode,
  RoutingRelay,
} from "./support/stages/routing_relay.ts";
import { withFolder } from "./support/with_folder.ts";

const NODE = "node-a";
const SERVICES = collectionOf({ kind: "Service", apiVersion: "v1" });
const TOR = "{address: 198.51.100.1, as: 64513, name: tor}";
const SPINE = "{address: 198.51.100.2, as: 64514, name: spine}";

/** A run with a configuration file. */
async function startRelay(folder: string, routing: string) {
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  api.store.create(rawNode(NODE, "192.168.0.2"));
  const [file, kubeconfig] = [`${folder}/config.yaml`, `${folder}/kubeconfig`];
  await writeKubeconfig(kubeconfig, { server: api.url, ca: api.ca, user: { token: "any" } });
  const fixed = [
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
    "kind: KubeProxyConfiguration",
    "mode: nftables",
    `clientConnection: {kubeconfig: ${kubeconfig}}`,
    `healthzBindAddress: 127.0.0.1:${unusedPort()}`,
    `metricsBindAddress: 127.0.0.1:${unusedPort()}`,
    "conntrack: {maxPerCore: 0}",
    "nftables: {minSyncPeriod: 0s}",
  ];
  const write = (block: string) =>
    Deno.writeTextFile(file, [...fixed, `routing: ${block}`, ""].join("\n"));
  await write(routing);
  const args = [`--config=${file}`];
  const relay = await RoutingRelay.start({ node: NODE, api, clock, args, mode: "nftables" });
  const balancer = (name: string, clusterIP: string, more: object = {}) => {
    for (const object of rawLoadBalancer(name, { clusterIP, nodes: [NODE], ...more })) {
      api.store.create(object);
    }
  };
  return {
    ...{ api, relay, write, balancer },
    [Symbol.asyncDispose]: async () => {
      await relay[Symbol.asyncDispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("changed pools are taken up: addresses stay, and waiting Services get one", () =>
  withFolder(async (folder) => {
    await using run = await startRelay(folder, "{enabled: true, pools: [192.0.2.0/32]}");
    const { api, relay, write, balancer } = run;
    balancer("web", "172.30.0.41");
    await relay.until("it is assigned", () => assigned(api, "web").length > 0);
    balancer("shop", "172.30.0.42");
    await relay.until("the other one waits", async () => {
      const { controllers } = await relay.status();
      return JSON.stringify(controllers).includes("default/shop: ");
    });
    await write("{enabled: true, pools: [192.0.2.0/32, more=192.0.2.8/30]}");
    await relay.until("it gets an address", () => assigned(api, "shop").length > 0);
    assertEquals([assigned(api, "web"), assigned(api, "shop")], [["192.0.2.0"], ["192.0.2.8"]]);
    await relay.until("both are answered for", () => relay.held.length === 2);
    const moved = () => relay.backends.calls.filter((call) => call === "remove 192.0.2.0");
    assertEquals(moved(), [], "the first address was answered for all the time");

    const interfaces = "layer2: {interfaces: [eth7]}";
    const plane = relay.backends.planes.get("IPv4")!;
    await write(`{enabled: true, pools: [192.0.2.0/32, more=192.0.2.8/30], ${interfaces}}`);
    await relay.until("both move", () => `${plane.interfaces}` === "eth7");
    assertEquals(relay.held.length, 2);

    // A pool is gone: its address stays in the status, but is no longer answered for.
    await write("{enabled: true, pools: [192.0.2.0/32, other=192.0.2.64/30]}");
    await relay.until("it is no longer answered for", () => `${relay.held}` === "192.0.2.0");
    assertEquals(assigned(api, "shop"), ["192.0.2.8"]);
    await relay.until("the status says so", async () => {
      const { controllers } = await relay.status();
      return JSON.stringify(controllers).includes("its range was removed from the pools");
    });
    const shop = api.store.list(SERVICES).find(({ metadata }) => metadata.name === "shop")!;
    api.store.update({ ...shop, status: { loadBalancer: {} } });
    await relay.until("it gets another one", () => `${assigned(api, "shop")}` === "192.0.2.64");

    balancer("theirs", "172.30.0.43", { loadBalancerClass: "metallb.io/metallb" });
    const classes = "loadBalancerClasses: [metallb.io/metallb]";
    await write(`{enabled: true, pools: [192.0.2.0/32, other=192.0.2.64/30], ${classes}}`);
    await relay.until("another class is taken up", () => assigned(api, "theirs").length > 0);
    assertEquals([assigned(api, "web"), assigned(api, "theirs")], [["192.0.2.0"], ["192.0.2.65"]]);
  }));

Deno.test("an invalid block is refused with field and value, and the last valid one keeps working", () =>
  withFolder(async (folder) => {
    await using run = await startRelay(folder, "{enabled: true, pools: [192.0.2.0/32]}");
    const { api, relay, write, balancer } = run;
    await write("{enabled: true, pools: [192.0.2.0/33]}");
    const refused = () => relay.lines.find((line) => line.includes("file is invalid"));
    await relay.until("it is refused", () => refused() !== undefined);
    assertStringIncludes(refused()!, "routing.pools.0");
    assertStringIncludes(refused()!, "found '192.0.2.0/33'");
    balancer("web", "172.30.0.41");
    await relay.until("it is assigned", () => `${assigned(api, "web")}` === "192.0.2.0");
  }));

Deno.test("changed peers and switches of BGP are taken up, as one new plan each", () =>
  withFolder(async (folder) => {
    const block = (bgp: string) =>
      `{enabled: true, announce: bgp, pools: [192.0.2.0/32], bgp: {enabled: true, ${bgp}}}`;
    await using run = await startRelay(folder, block(`peers: [${TOR}]`));
    const { relay, write, balancer } = run;
    const { daemon } = relay.backends;
    balancer("web", "172.30.0.41", { externalIPs: ["203.0.113.7"] });
    await relay.until("it is announced", () => `${daemon.announced}` === "192.0.2.0/32");
    const names = () => `${daemon.plan?.peers.map(({ name }) => name)}`;
    const tor = daemon.plan!.peers[0];

    await write(block(`peers: [${TOR}, ${SPINE}], communities: ["64512:7"]`));
    await relay.until("there are two peers", () => names() === "spine,tor");
    assertEquals(daemon.plan!.peers[1], tor);
    await relay.until(
      "the community",
      () => `${daemon.plan?.announced[0]?.communities}` === "64512:7",
    );

    const external = "advertise: {externalIps: true}, externalIpRanges: [203.0.113.0/24]";
    await write(block(`peers: [${SPINE}], ${external}`));
    await relay.until("there is one peer", () => names() === "spine");
    await relay.until(
      "external IPs are announced",
      () => `${daemon.announced}` === "192.0.2.0/32,203.0.113.7/32",
    );
    assertEquals(daemon.plan!.announced[0]!.communities, []);
    const withdrawn = relay.backends.calls.filter((call) =>
      call.startsWith("announce") && !call.includes("192.0.2.0/32")
    );
    assertEquals(withdrawn.slice(1), [], "it was never withdrawn");

    await write(block(`peers: [${SPINE}], ${external}, imports: {external: [10.0.0.0/8]}`));
    await relay.until("imports", () => `${daemon.plan?.imports.external}` === "10.0.0.0/8");

    await write("{enabled: true, announce: none, pools: [192.0.2.0/32]}");
    await relay.until("BGP is disabled", () => names() === "" && daemon.announced.length === 0);
  }));
