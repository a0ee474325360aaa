/**
 * What iptables mode does with packets beyond the packet-flow table: those that are nobody's, those
 * that a strict firewall would drop, and those of flows whose endpoint has gone.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/address_plan.ts";
import { ProbeClient } from "../support/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { checkFlowsOfGoneEndpoint } from "../support/gone_endpoint.ts";
import { IptablesScene } from "../support/iptables_scene.ts";
import { IPTABLES_VARIANTS, iptablesRequirements } from "../support/iptables_tools.ts";
import { checkMartians } from "../support/martians.ts";
import { type Namespace, netnsRequirements } from "../support/netns.ts";
import { RelayProcess } from "../support/relay_process.ts";
import { isMissing, program } from "../support/requirement.ts";
import { NODE_PORT, ON_NODE_PORTS, webServices, webSlices } from "../support/web_service.ts";

const ignore = isMissing("packets beyond the table through iptables mode", [
  ...netnsRequirements(),
  ...IPTABLES_VARIANTS.flatMap(iptablesRequirements),
  ...["bash", "conntrack", "socat"].map(program),
]);

const { IPv4, IPv6 } = ADDRESSES;
const HEALTH_CHECK_PORT = 30111;
/** A port of the client at which nobody listens; only counted. */
const COUNTED_PORT = 4444;

for (const variant of IPTABLES_VARIANTS) {
  Deno.test({
    name: `iptables mode (${variant}) with packets beyond the table`,
    ignore,
    async fn(t) {
      await using stage = await IptablesScene.create(variant);
      await stage.scene.write(webServices(BALANCED), webSlices("a1"));
      const relay = stage.start();
      await relay.settled();
      await t.step("an endpoint goes: its UDP flows move, its TCP connections go on", async () => {
        await checkFlowsOfGoneEndpoint(stage.scene, BALANCED);
      });
      await t.step("health check node ports are open where INPUT drops the rest", async () => {
        await checkHealthCheckPort(stage);
      });
      await t.step("nobody outside reaches what listens on 127.0.0.1", async () => {
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
    },
  });
}

for (const variant of IPTABLES_VARIANTS) {
  Deno.test({
    name: `iptables mode (${variant}) counts packets as kube-proxy does, over restarts`,
    ignore: isMissing("packet counters of iptables mode", [
      ...netnsRequirements(),
      ...iptablesRequirements(variant),
      ...["bash", "nfacct"].map(program),
    ]),
    async fn() {
      await using stage = await IptablesScene.create(variant);
      await stage.scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
      const client = ProbeClient.start(stage.node);
      const first = stage.start();
      await first.settled();
      assertEquals(await accepted(stage.node), 0);
      const onLocalhost = { protocol: "TCP", address: IPv4.loopback, port: NODE_PORT } as const;
      assertEquals(await client.who(onLocalhost), "pod-a1");
      assertEquals(await client.who({ ...onLocalhost, address: IPv4.node }), "pod-a1");
      assertEquals(await accepted(stage.node), 1, "only connections to 127.0.0.0/8 count");
      await first.stop();
      const second = stage.start();
      await second.settled();
      assertEquals(await client.who(onLocalhost), "pod-a1");
      assertEquals(await accepted(stage.node), 2, "a restart goes on");
      await second.stop();
      const third = stage.start("--iptables-localhost-nodeports=false");
      await third.settled();
      assertEquals(await accepted(stage.node), 2);
      assertStringIncludes(await stage.node.output("nfacct", ["list"]), "ct_state_invalid_dropped");
      await third.stop();
      const { folder } = stage.scene;
      const removed = await RelayProcess.run(stage.node, { folder, args: ["--cleanup"] });
      assertStringIncludes(removed, "packet counter localhost_nps_accepted_pkts (nfacct)");
      assertEquals(await stage.node.output("nfacct", ["list"]), "");
    },
  });
}

/** The counter of connections to node ports on loopback, as the metrics have it. */
async function accepted(node: Namespace): Promise<number> {
  const request = "GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n";
  const script = `exec 3<>/dev/tcp/127.0.0.1/10249 && printf '${request}' >&3 && cat <&3`;
  const page = await node.output("bash", ["-c", script]);
  const name = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total";
  return Number(new RegExp(`^${name} (\\d+)`, "m").exec(page)?.[1]);
}

const BALANCED = {
  ...ON_NODE_PORTS,
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  healthCheckNodePort: HEALTH_CHECK_PORT,
};

/** The first line that an HTTP server says; empty when nobody answers. */
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
  // At the end, so that everything that is ours comes first.
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
  const { client, localPods: [pod] } = scene.cluster;
  const [prefix, to] = family === "IPv4"
    ? ["iptables", `IP4-SENDTO:${IPv4.client}:6`]
    : ["ip6tables", `IP6-SENDTO:[${IPv6.client}]:6`];
  const count = ["INPUT", "-p", "tcp", "--dport", `${COUNTED_PORT}`];
  await client.output(`${prefix}-nft`, ["-w", "-A", ...count]);
  const send = () => pod.output("bash", ["-c", `printf '${SYN_FIN}' | socat -u - '${to}'`]);
  const dropped = () => packetsOf(node, `${prefix}-${variant}`, /^-A KUBE-FORWARD .*INVALID.*DROP/);
  const arrived = () => packetsOf(client, `${prefix}-nft`, /^-A INPUT .*--dport 4444/);
  const before = await dropped();
  await send();
  await eventually("it is dropped", async () => await dropped() > before);
  assertEquals(await arrived(), 0);
  // That it would have arrived shows when the rule is gone.
  await node.output(`${prefix}-${variant}`, ["-w", "-F", "KUBE-FORWARD"]);
  await send();
  await eventually("it arrives", async () => await arrived() > 0);
}

/** A TCP header to {@linkcode COUNTED_PORT} that opens and ends at once: no state has such. */
const SYN_FIN = [0x30, 0x39, COUNTED_PORT >> 8, COUNTED_PORT & 255, ...Array(8).fill(0), 0x50, 0x03]
  .concat(Array(6).fill(0)).map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");

/** How many packets have met a rule. */
async function packetsOf(namespace: Namespace, tool: string, rule: RegExp): Promise<number> {
  const saved = await namespace.output(`${tool}-save`, ["-c", "-t", "filter"]);
  for (const line of saved.split("\n")) {
    const [, packets, text = ""] = /^\[(\d+):\d+\] (.*)$/.exec(line) ?? [];
    if (rule.test(text)) return Number(packets);
  }
  assert(false, `no rule ${rule} in ${saved}`);
}
