/** Tests nftables mode with packets beyond the packet-flow table. */
import { assert, assertEquals } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { checkFlowsOfGoneEndpoint } from "../support/stages/gone_endpoint.ts";
import { checkMartians } from "../support/stages/martians.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { isSettled, type RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { NFTABLES_MODE } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { sctpInit } from "../support/builders/sctp_packet.ts";
import {
  ON_NODE_PORTS,
  VIP,
  VIP_6,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const test = testNeeding("packets beyond the table through nftables mode", [
  ...netnsRequirements(),
  ...["bash", "conntrack", "nft", "socat"].map(program),
]);

const { IPv4, IPv6 } = ADDRESSES;

test("nftables mode with packets beyond the table", async (t) => {
  await using stage = await RuleScene.create(NFTABLES_MODE);
  const { node, scene } = stage;
  await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
  const relay = stage.start(
    "--nodeport-addresses=primary,localhost",
    `--service-cidr=${IPv4.serviceCidr},${IPv6.serviceCidr}`,
  );
  await relay.settled();
  await t.step(
    "an endpoint is removed: its UDP flows move, its TCP connections continue",
    async () => {
      await checkFlowsOfGoneEndpoint(scene, ON_NODE_PORTS);
    },
  );
  for (const client of [scene.cluster.client, scene.cluster.localPodClient, node]) {
    await t.step(`an unserved address in the range of Services: ${client.name}`, async () => {
      const probe = ProbeClient.start(client);
      for (const vip of [VIP, VIP_6]) {
        assertEquals(await probe.who({ ...vip, port: 81 }), "refused");
        const address = vip.address.replace(/41$/, "77");
        assertEquals(await probe.who({ ...vip, address }, 300), "silent");
      }
    });
  }
  await t.step("SCTP is sent on to the endpoint", () => checkSctp(stage));
  await t.step("no outside client reaches a server on 127.0.0.1", async () => {
    await checkMartians(scene, async () => {
      await node.output("nft", ["flush", "chain", "ip", "kube-relay", "loopback-guard"]);
    });
  });
  await relay.stop();
});

/** No program here speaks it; one packet shows where it comes out. */
async function checkSctp({ scene }: RuleScene): Promise<void> {
  const { localPods: [pod], localPodClient } = scene.cluster;
  const ports = [{ name: "", protocol: "SCTP", port: 8080 }];
  await scene.write(
    [
      ...webServices(),
      testService("sctp", { clusterIP: "172.30.0.50", ports: [{ ...ports[0]!, port: 5000 }] }),
    ],
    [...webSlices("a1"), testEndpointSlice("sctp", { endpoints: [IPv4.localPods[0]], ports })],
  );
  await loadNftables(
    pod,
    "table ip look {\n  chain in {\n    type filter hook input priority 0\n" +
      "    sctp dport 8080 counter\n  }\n}\n",
  );
  const packet = sctpInit({ from: 40_000, to: 5000 }).map((byte) =>
    `\\x${byte.toString(16).padStart(2, "0")}`
  ).join("");
  await eventually("it arrives at the endpoint", async () => {
    await localPodClient.output("bash", [
      "-c",
      `printf '${packet}' | socat -u - IP4-SENDTO:172.30.0.50:132`,
    ]);
    return !/packets 0 /.test(await pod.output("nft", ["list", "chain", "ip", "look", "in"]));
  });
}

/** More clients than the map of kube-proxy's mode takes for one endpoint. */
const CLIENTS = 70_000;
const STICKY = { sessionAffinity: "ClientIP" } as const;
const REMEMBERED = new RegExp(
  String.raw`(\S+) \. ${IPv4.client.replaceAll(".", "\\.")} ` +
    String.raw`timeout \S+ expires (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)? : (\S+)`,
);

/** For how long the client is remembered from now on, by which ServicePort, and by which number. */
async function remembered(
  { node }: RuleScene,
): Promise<{ readonly ms: number; readonly block: string; readonly slot: string }> {
  const listing = await node.output("nft", ["list", "map", "ip", "kube-relay", "affinity"]);
  const [, block = "", hours, minutes, seconds, ms, slot] = REMEMBERED.exec(listing) ?? [];
  assert(slot !== undefined, listing);
  const [h, m, s] = [hours, minutes, seconds].map((part) => Number(part ?? 0));
  const all = ((h! * 60 + m!) * 60 + s!) * 1_000 + Number(ms ?? 0);
  return { ms: all, block, slot: slot.replace(",", "") };
}

/** Elements for that many other clients. */
function manyClients({ block, slot }: { readonly block: string; readonly slot: string }): string {
  const lines = Array.from(
    { length: CLIENTS },
    (_, number) =>
      `  ${block} . 100.${64 + (number >> 16)}.${(number >> 8) & 255}.${number & 255} ` +
      `timeout 10m : ${slot}`,
  );
  return `add element ip kube-relay affinity {\n${lines.join(",\n")}\n}\n`;
}

/** Returns the endpoint that answers a client; it must be the same one twelve times in a row. */
async function endpointOf(client: ProbeClient): Promise<string> {
  const answer = await client.who(VIP);
  for (let times = 0; times < 12; times++) assertEquals(await client.who(VIP), answer);
  return answer;
}

test("nftables mode: affinity slides, with 70,000 clients, a restart and endpoints that change", async (t) => {
  await using stage = await RuleScene.create(NFTABLES_MODE);
  await stage.scene.write(webServices(STICKY), webSlices("a1", "b1"));
  let relay = stage.start();
  await relay.settled();
  const client = ProbeClient.start(stage.scene.cluster.client);
  const mine = await endpointOf(client);
  await t.step("each connection restarts the time", () => checkSliding(stage, client));
  await t.step(
    "70,000 other clients change nothing, and further clients are remembered",
    async () => {
      await checkManyClients(stage);
      assertEquals(await endpointOf(client), mine);
    },
  );
  await t.step("by kill -9 and a start", async () => {
    await relay.kill();
    assertEquals(await endpointOf(client), mine);
    relay = stage.start();
    await relay.settled();
    assertEquals(await endpointOf(client), mine);
  });
  await t.step(
    "an endpoint goes and its clients with it; it comes back and they stay",
    () => checkChangingEndpoints(stage, { relay, client, mine }),
  );
  await relay.stop();
});

async function checkSliding(stage: RuleScene, client: ProbeClient): Promise<void> {
  const { ms, slot } = await remembered(stage);
  await eventually("time passes", async () => (await remembered(stage)).ms < ms - 1_000);
  const before = await remembered(stage);
  // By another frontend of the Service.
  await client.who({ ...VIP, address: IPv4.externalIp });
  const after = await remembered(stage);
  assert(after.ms > before.ms, `${after.ms} ms after ${before.ms} ms`);
  assertEquals(after.slot, slot);
}

async function checkManyClients(stage: RuleScene): Promise<void> {
  const { node, scene } = stage;
  await loadNftables(node, manyClients(await remembered(stage)));
  await endpointOf(ProbeClient.start(scene.cluster.otherNode));
  const listing = await node.output("nft", ["list", "map", "ip", "kube-relay", "affinity"]);
  assert(listing.split(" timeout ").length > CLIENTS);
}

async function checkChangingEndpoints(
  { scene }: RuleScene,
  { relay, client, mine }: {
    readonly relay: RelayProcess;
    readonly client: ProbeClient;
    readonly mine: string;
  },
): Promise<void> {
  const [left, other] = mine === "pod-a1" ? ["b1", "pod-b1"] as const : ["a1", "pod-a1"] as const;
  await scene.write(webServices(STICKY), webSlices(left));
  await eventually("the client has moved", async () => await client.who(VIP) === other);
  await scene.write(webServices(STICKY), webSlices("a1", "b1"));
  await relay.until(
    "both are there",
    (status) =>
      isSettled(status) && servicesOf(status).every(({ endpoints }) => endpoints.length === 2),
  );
  assertEquals(await endpointOf(client), other);
}
