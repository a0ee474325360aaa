/**
 * Tests iptables mode with packets beyond the packet-flow table: those of no Service, those that a
 * strict firewall would drop, and those of flows whose endpoint was removed.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { splitWords } from "../../backends/netfilter/iptables/iptables_objects.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { checkFlowsOfGoneEndpoint } from "../support/stages/gone_endpoint.ts";
import { IptablesScene } from "../support/stages/iptables_scene.ts";
import { IPTABLES_VARIANTS, iptablesRequirements } from "../support/stages/iptables_tools.ts";
import { INVALID_PORT, sendInvalidPacket } from "../support/builders/invalid_packet.ts";
import { checkMartians } from "../support/stages/martians.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { ON_NODE_PORTS, VIP, webServices, webSlices } from "../support/builders/web_service.ts";

const test = testNeeding("packets beyond the table through iptables mode", [
  ...netnsRequirements(),
  ...IPTABLES_VARIANTS.flatMap(iptablesRequirements),
  ...["bash", "conntrack", "socat"].map(program),
]);

const { IPv4, IPv6 } = ADDRESSES;
const HEALTH_CHECK_PORT = 30111;

for (const variant of IPTABLES_VARIANTS) {
  test(`iptables mode (${variant}) with packets beyond the table`, async (t) => {
    await using stage = await IptablesScene.create(variant);
    await stage.scene.write(webServices(BALANCED), webSlices("a1"));
    const relay = stage.start();
    await relay.settled();
    await t.step(
      "an endpoint is removed: its UDP flows move, its TCP connections continue",
      async () => {
        await checkFlowsOfGoneEndpoint(stage.scene, BALANCED);
      },
    );
    await t.step("health check node ports are open if INPUT drops the rest", async () => {
      await checkHealthCheckPort(stage);
    });
    await t.step("no outside client reaches a server on 127.0.0.1", async () => {
      const { node, scene, variant } = stage;
      await checkMartians(scene, async () => {
        await node.output(`iptables-${variant}`, ["-w", "-F", "KUBE-FIREWALL"]);
      });
    });
    for (const family of ["IPv4", "IPv6"] as const) {
      await t.step(`packets of no connection are not forwarded, ${family}`, async () => {
        await checkInvalid(stage, family);
      });
    }
    await relay.stop();
  });
}

for (const variant of IPTABLES_VARIANTS) {
  test(`iptables mode (${variant}) before and after it knows the ranges of cluster IPs`, async () => {
    await using stage = await IptablesScene.create(variant);
    const { node, scene } = stage;
    const before = await stage.rules();
    const iptables = (...args: readonly string[]) =>
      node.output(`iptables-${variant}`, ["-w", ...args]);
    const client = ProbeClient.start(scene.cluster.client);
    // At the end, after all rules of kube-relay. A pod answers, so the packet was accepted.
    await iptables("-A", "FORWARD", "-j", "DROP");
    const marked = stage.start();
    await marked.settled();
    const kept = await client.open(VIP);
    assertEquals([await client.who(VIP), await kept.who()], ["pod-a1", "pod-a1"]);
    assertMatch(await stage.rules(), TO_VIP_MARKED);
    await marked.stop();

    const ranged = stage.start(`--service-cidr=${IPv4.serviceCidr},${IPv6.serviceCidr}`);
    await ranged.settled();
    assertEquals(TO_VIP_MARKED.test(await stage.rules()), false);
    assertEquals([await client.who(VIP), await kept.who()], ["pod-a1", "pod-a1"]);
    const answer = await client.probe(VIP);
    assert(answer.kind === "answered" && answer.by.peer !== IPv4.client, "masqueraded");
    const [, accepted = ""] = /^-A (KUBE-FORWARD .*--ctorigdst.*)$/m.exec(await stage.rules()) ??
      [];
    await iptables("-D", ...splitWords(accepted));
    assertEquals(await client.who(VIP, SILENCE_MS), "silent", "nothing else accepts it");
    await ranged.stop();

    const again = stage.start();
    await again.settled();
    assertMatch(await stage.rules(), TO_VIP_MARKED);
    assertEquals([await client.who(VIP), await kept.who()], ["pod-a1", "pod-a1"]);
    await again.stop();
    await scene.cleanup();
    await iptables("-D", "FORWARD", "-j", "DROP");
    assertEquals(await stage.rules(), before);
  });
}

const TO_VIP_MARKED = new RegExp(`-d ${IPv4.clusterIp}/32 .* -j KUBE-MARK-MASQ$`, "m");

const BALANCED = {
  ...ON_NODE_PORTS,
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  healthCheckNodePort: HEALTH_CHECK_PORT,
};

/** The first line of an HTTP server; empty if there is no answer. */
async function statusLine(namespace: Namespace, port: number): Promise<string> {
  const request = `GET /healthz HTTP/1.1\\r\\nHost: node\\r\\nConnection: close\\r\\n\\r\\n`;
  const script = `exec 3<>/dev/tcp/${IPv4.node}/${port} && printf '${request}' >&3 && head -1 <&3`;
  return (await namespace.run("timeout", ["1", "bash", "-c", script])).stdout.trim();
}

async function checkHealthCheckPort({ node, scene, variant }: IptablesScene): Promise<void> {
  const { client } = scene.cluster;
  const healthz = 10256;
  assertEquals(await statusLine(client, healthz), "HTTP/1.1 200 OK");
  const iptables = `iptables-${variant}`;
  // At the end, after all rules of kube-relay.
  const drop = ["INPUT", "-i", "eth0", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"];
  await node.output(iptables, ["-w", "-A", ...drop]);
  assertEquals(await statusLine(client, healthz), "", "the firewall drops");
  assertEquals(await statusLine(client, HEALTH_CHECK_PORT), "HTTP/1.1 200 OK");
  await node.output(iptables, ["-w", "-D", ...drop]);
}

async function checkInvalid(
  { node, scene, variant }: IptablesScene,
  family: "IPv4" | "IPv6",
): Promise<void> {
  const { client } = scene.cluster;
  const prefix = family === "IPv4" ? "iptables" : "ip6tables";
  const count = ["INPUT", "-p", "tcp", "--dport", `${INVALID_PORT}`];
  await client.output(`${prefix}-nft`, ["-w", "-A", ...count]);
  const send = () => sendInvalidPacket(scene.cluster, family);
  const dropped = () => packetsOf(node, `${prefix}-${variant}`, /^-A KUBE-FORWARD .*INVALID.*DROP/);
  const arrived = () =>
    packetsOf(client, `${prefix}-nft`, new RegExp(`^-A INPUT .*--dport ${INVALID_PORT}`));
  const before = await dropped();
  await send();
  await eventually("it is dropped", async () => await dropped() > before);
  assertEquals(await arrived(), 0);
  // Without the rule, the packet arrives.
  await node.output(`${prefix}-${variant}`, ["-w", "-F", "KUBE-FORWARD"]);
  await send();
  await eventually("it arrives", async () => await arrived() > 0);
}

/** Returns the number of packets that matched a rule. */
async function packetsOf(namespace: Namespace, tool: string, rule: RegExp): Promise<number> {
  const saved = await namespace.output(`${tool}-save`, ["-c", "-t", "filter"]);
  for (const line of saved.split("\n")) {
    const [, packets, text = ""] = /^\[(\d+):\d+\] (.*)$/.exec(line) ?? [];
    if (rule.test(text)) return Number(packets);
  }
  assert(false, `no rule ${rule} in ${saved}`);
}
