/**
 * Tests that the kernel counts each packet of a Service once: against counters in the namespaces of
 * the endpoints.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import { ADDRESSES, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { type RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import {
  NODE_PORT,
  ON_NODE_PORTS,
  VIP,
  VIP_6,
  VIP_UDP,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const test = testNeeding("counters of Services with real packets", [
  ...netnsRequirements(),
  program("nft"),
]);
const { IPv4 } = ADDRESSES;
const COUNTED = ["--mode=nftables", "--service-counters"];
const HOST_PORT = 9090;
const HOST_VIP = { protocol: "TCP", address: "172.30.0.77", port: 80 } as const;

/** Readings are used again for ten times as long as they took, on a busy machine seconds. */
const PATIENCE = { deadlineMs: 60_000 };

type Counts = Required<Omit<TrafficFigures, "opened" | "open">>;

/** Counts the packets that an endpoint of a namespace receives and sends, by family. */
async function countAt(namespace: Namespace, port: number): Promise<void> {
  const chains = (["input", "output"] as const).map((hook) => `
    chain ${hook} {
      type filter hook ${hook} priority 0
      ${["ipv4", "ipv6"].map((family) => ruleText(family, { hook, port })).join("\n")}
    }`);
  await loadNftables(namespace, `table inet witness {${chains.join("\n")}\n}\n`);
}

function ruleText(
  family: string,
  { hook, port }: { readonly hook: "input" | "output"; readonly port: number },
): string {
  const direction = hook === "input" ? "dport" : "sport";
  return `meta nfproto ${family} meta l4proto { tcp, udp } th ${direction} ${port} counter`;
}

async function witnessed(namespace: Namespace): Promise<Readonly<Record<"ipv4" | "ipv6", Counts>>> {
  const text = await namespace.output("nft", ["list", "table", "inet", "witness"]);
  const of = (family: string): Counts => {
    const found = [...text.matchAll(new RegExp(`${family}.*packets (\\d+) bytes (\\d+)`, "g"))];
    const [[, packetsIn, bytesIn] = [], [, packetsOut, bytesOut] = []] = found;
    return {
      bytesFromClients: Number(bytesIn),
      bytesToClients: Number(bytesOut),
      packetsFromClients: Number(packetsIn),
      packetsToClients: Number(packetsOut),
    };
  };
  return { ipv4: of("ipv4"), ipv6: of("ipv6") };
}

/** Returns the counters that `status` reports for all ports of a Service. */
async function counted(relay: RelayProcess, service: string): Promise<Counts> {
  const services = servicesOf(await relay.status())
    .filter(({ name }) => name.startsWith(`ns1/${service}:`) || name === `ns1/${service}`);
  const sum = (of: keyof Counts) =>
    services.reduce((total, { traffic }) => total + (traffic?.[of] ?? 0), 0);
  return {
    bytesFromClients: sum("bytesFromClients"),
    bytesToClients: sum("bytesToClients"),
    packetsFromClients: sum("packetsFromClients"),
    packetsToClients: sum("packetsToClients"),
  };
}

/** The side that closes a connection sends its last packets a little later. */
async function assertCounted(
  relay: RelayProcess,
  { service, witness }: { readonly service: string; readonly witness: () => Promise<Counts> },
): Promise<void> {
  let [found, expected] = [await counted(relay, service), await witness()];
  await eventually(`counts of ${service}`, async () => {
    [found, expected] = [await counted(relay, service), await witness()];
    return JSON.stringify(found) === JSON.stringify(expected);
  }, PATIENCE).catch(() => undefined);
  assertEquals(found, expected);
  assert(expected.packetsFromClients > 0 && expected.packetsToClients > 0);
}

async function hasReceived(relay: RelayProcess, packets: number): Promise<boolean> {
  return (await counted(relay, "web")).packetsFromClients === packets;
}

/** Returns the metrics. */
async function scrape(node: Namespace): Promise<string> {
  const program = 'console.log(await (await fetch("http://127.0.0.1:10249/metrics")).text())';
  return await node.output(Deno.execPath(), ["eval", "--quiet", program]);
}

async function countedScene(): Promise<RelayScene> {
  const scene = await RelayScene.create();
  const { node, localPods } = scene.cluster;
  await startEchoServer(node, {
    name: "host",
    listen: [{ address: IPv4.node, port: HOST_PORT }],
  });
  await countAt(localPods[0], 8080);
  await countAt(node, HOST_PORT);
  await writeServices(scene);
  return scene;
}

async function writeServices(scene: RelayScene): Promise<void> {
  const host = testService("host", { clusterIP: HOST_VIP.address });
  const hostSlice = testEndpointSlice("host", {
    endpoints: [{ addresses: [IPv4.node], nodeName: THIS_NODE }],
    ports: [{ name: "", protocol: "TCP", port: HOST_PORT }],
  });
  await scene.write([...webServices(ON_NODE_PORTS), host], [...webSlices("a1"), hostSlice]);
}

test("--service-counters counts every packet once, from every client, to every address", async () => {
  await using scene = await countedScene();
  const { client, localPodClient, localPods, node } = scene.cluster;
  await using relay = scene.start(COUNTED);
  await relay.settled();
  const nodePort = { ...VIP, address: IPv4.node, port: NODE_PORT };
  const targets = [VIP, VIP_UDP, VIP_6, nodePort, { ...VIP, address: IPv4.externalIp }];
  for (const namespace of [client, localPodClient, node]) {
    const probe = ProbeClient.start(namespace);
    for (const target of targets) assertEquals(await probe.who(target), "pod-a1");
    assertEquals(await probe.who(HOST_VIP), "host");
  }
  const pod = localPods[0];
  await assertCounted(relay, {
    service: "web",
    witness: async () => (await witnessed(pod)).ipv4,
  });
  await assertCounted(relay, {
    service: "web-6",
    witness: async () => (await witnessed(pod)).ipv6,
  });
  await assertCounted(relay, {
    service: "host",
    witness: async () => (await witnessed(node)).ipv4,
  });
  const metrics = await scrape(node);
  const series = (await counted(relay, "web-6")).packetsToClients;
  assertStringIncludes(
    metrics,
    'service="web-6",port_name="tcp",protocol="TCP",ip_family="IPv6"}',
  );
  assertStringIncludes(metrics, `kube_relay_service_sent_packets_total{`);
  assert(metrics.includes(`ip_family="IPv6"} ${series}\n`), `${series} in ${metrics}`);
  // Of the node: the connections above.
  assert(/^kube_relay_conntrack_entries [1-9]/m.test(metrics), metrics);
  assert(/^kube_relay_conntrack_limit [1-9]/m.test(metrics), metrics);
  // Past every Service: counted only by the endpoint.
  const before = await counted(relay, "web");
  const probe = ProbeClient.start(localPodClient);
  assertEquals(await probe.who({ ...VIP, address: IPv4.localPods[0], port: 8080 }), "pod-a1");
  assertEquals(await counted(relay, "web"), before);
});

test("--service-counters continues after a restart and a flush; without it nothing is left of it", async () => {
  await using scene = await countedScene();
  const { client, node } = scene.cluster;
  const probe = ProbeClient.start(client);
  const first = scene.start(COUNTED);
  await first.settled();
  assertEquals(await probe.who(VIP_UDP), "pod-a1");
  // A reading is reused for a while, so later packets do not appear at once.
  await eventually("one datagram", () => hasReceived(first, 1), PATIENCE);
  await first.kill();
  assertEquals(await probe.who(VIP_UDP), "pod-a1");

  const second = scene.start(COUNTED);
  await second.settled();
  await eventually("what was counted in between", () => hasReceived(second, 2), PATIENCE);
  await node.output("nft", ["delete", "table", "ip", "kube-relay-counters"]);
  await eventually("the table that counts is back", async () => {
    await second.status();
    return (await node.output("nft", ["list", "tables"])).includes("ip kube-relay-counters");
  }, PATIENCE);
  assertEquals(await probe.who(VIP_UDP), "pod-a1");
  await eventually("it goes on", () => hasReceived(second, 3), PATIENCE);
  await second.kill();

  const third = scene.start(["--mode=nftables"]);
  await third.settled();
  const tables = await node.output("nft", ["list", "tables"]);
  assert(!tables.includes("kube-relay-counters"), tables);
  assertEquals(servicesOf(await third.status()).some(({ traffic }) => traffic), false);
  await third.kill();

  const fourth = scene.start(COUNTED);
  await fourth.settled();
  await fourth.kill();
  assertStringIncludes(await scene.cleanup(), "table ip kube-relay-counters (nftables)");
  assert(!(await node.output("nft", ["list", "tables"])).includes("kube-relay"));
});

test("every golden file of the table that counts is taken by nft, twice", async () => {
  await using namespace = await Namespace.create("counters");
  const folder = new URL("../golden/nftables-counters/", import.meta.url);
  const files = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
  assert(files.length > 0);
  for (const file of files) {
    const text = await Deno.readTextFile(new URL(file, folder));
    await loadNftables(namespace, text);
    await loadNftables(namespace, text);
    await namespace.output("nft", ["flush", "ruleset"]);
  }
});
