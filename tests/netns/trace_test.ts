/**
 * Tests `kube-relay trace` with real packets: its output in each mode, and that it leaves nothing
 * behind.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { NFTABLES_MODE, RULE_MODES, type RuleMode } from "../support/stages/rule_modes.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import type { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program } from "../support/requirement.ts";
import { type TraceResult, TraceStage } from "../support/stages/trace_stage.ts";
import {
  NODE_PORT,
  ON_NODE_PORTS,
  VIP,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const { clusterIp, localPods: [pod], remotePods: [far], node: nodeAddress } = ADDRESSES.IPv4;
const EMPTY = "172.30.0.90";
const LOCAL_ONLY = "172.30.0.91";
const CLOSED = "172.30.0.92";
const CLOSED_PORT = 9;
const UNSERVED = "172.30.0.99";
const REQUIREMENTS = [
  ...netnsRequirements(),
  ...["nft", "conntrack", "setpriv", "ps"].map(program),
];

/** Service `web` on both pods, and one each without endpoints, of policy Local with none here, and closed. */
async function writeServices(scene: RelayScene): Promise<void> {
  const slice = testEndpointSlice("local", {
    endpoints: [{ addresses: [far], nodeName: "another-node" }],
  });
  const closed = testEndpointSlice("closed", {
    endpoints: [pod],
    ports: [{ name: "", protocol: "TCP", port: CLOSED_PORT }],
  });
  await scene.write(
    [
      ...webServices(ON_NODE_PORTS),
      testService("empty", { clusterIP: EMPTY }),
      testService("local", { clusterIP: LOCAL_ONLY, internalTrafficPolicy: "Local" }),
      testService("closed", { clusterIP: CLOSED }),
    ],
    [...webSlices("a1", "b1"), slice, closed],
  );
}

function succeeded(result: TraceResult) {
  const { report, code, stderr } = result;
  assert(report, `exit code ${code}: ${stderr}`);
  assertEquals(report.comparison?.differences, [], JSON.stringify(report, undefined, 1));
  assertEquals(code, 0);
  return report;
}

const MODES: readonly (RuleMode | undefined)[] = [...RULE_MODES, undefined];

for (const mode of MODES) {
  const name = mode?.name ?? "userspace mode";
  const ignore = isMissing(`trace in ${name}`, [...REQUIREMENTS, ...mode?.requirements() ?? []]);
  Deno.test({ name: `trace in ${name}`, ignore, fn: (t) => traceInMode(t, mode) });
}

async function traceInMode(t: Deno.TestContext, mode: RuleMode | undefined): Promise<void> {
  await using stage = await TraceStage.start(mode, writeServices);
  const before = await mode?.state(stage.node);
  const isKernel = mode !== undefined;

  await t.step("a cluster IP: the endpoint that the packet really went to", async () => {
    const report = succeeded(await stage.trace("node", `${clusterIp}:80`));
    assert(report.outcome.kind === "forwarded");
    assert([`${pod}:8080`, `${far}:8080`].includes(report.outcome.endpoint));
    assertEquals(report.service?.key, "ns1/web:tcp/TCP");
    assert(report.steps.some(({ meaning }) => meaning?.includes("ns1/web:tcp")));
    if (isKernel) assertEquals(report.conntrack?.original.destination, clusterIp);
  });

  await t.step("UDP and IPv6, by the name of the Service", async () => {
    const report = succeeded(await stage.trace("node", "ns1/web-6:udp"));
    assertEquals([report.packet.protocol, report.packet.family], ["UDP", "IPv6"]);
    assertEquals(report.outcome.kind, "forwarded");
  });

  await t.step("a node port", async () => {
    const report = succeeded(await stage.trace("node", `${nodeAddress}:${NODE_PORT}`));
    assertEquals([report.outcome.kind, report.service?.role], ["forwarded", "NodePort"]);
  });

  await t.step("a Service without endpoints: the rule that refused", async () => {
    const { outcome } = succeeded(await stage.trace("node", `${EMPTY}:80`));
    assert(outcome.kind === "rejected", outcome.kind);
    // The port is closed. In userspace mode the kernel refuses by itself, without a rule.
    if (isKernel) assertStringIncludes(outcome.by?.rule?.toLowerCase() ?? "", "reject");
  });

  await t.step("policy Local without an endpoint here: the rule that dropped", async () => {
    const { report } = await stage.trace("node", `${LOCAL_ONLY}:80`);
    const { outcome, comparison } = report!;
    if (!isKernel) return assertEquals(outcome.kind, "rejected");
    assert(outcome.kind === "dropped", outcome.kind);
    assertEquals(comparison?.differences, []);
    assert(outcome.by !== undefined);
  });

  await t.step("a closed endpoint: the packet was sent there nevertheless", async () => {
    // A forwarder has no endpoint then, and tries it four times.
    if (!isKernel) return;
    const { outcome, origin } = succeeded(await stage.trace("node", `${CLOSED}:80`));
    assert(outcome.kind === "forwarded", JSON.stringify(outcome));
    assertEquals(outcome.endpoint, `${pod}:${CLOSED_PORT}`);
    assertStringIncludes(JSON.stringify(origin), "refused");
  });

  await t.step("an address of no Service", async () => {
    const { outcome } = succeeded(await stage.trace("node", `${UNSERVED}:80`));
    assertEquals(outcome.kind, "unchanged");
  });

  await t.step("without a route no rule is asked, and nothing was traced", async () => {
    // As if the table ended here: there is a default route.
    await stage.node.run("ip", ["route", "add", "throw", "203.0.113.9/32"]);
    const { code, report } = await stage.trace("node", "203.0.113.9:80");
    assertStringIncludes(JSON.stringify(report?.origin), "no route");
    assertEquals([code, report?.outcome.kind], [1, "not seen"]);
  });
  await t.step("a packet of a pod is waited for", async () => {
    const { localPodClient } = stage.scene.cluster;
    const client = ADDRESSES.IPv4.localPodClient;
    await using trace = stage.startTrace([client, `${clusterIp}:80`, "--wait=20s"]);
    await eventually("it waits", () => trace.errors.includes("Waiting for"));
    await ProbeClient.start(localPodClient).who(VIP);
    assertEquals((await trace.status()).code, 0, trace.errors);
  });

  await t.step("the wait for a packet that never comes ends in time", async () => {
    const { code, stderr } = await stage.trace("192.0.2.7", `${clusterIp}:80`, "--wait=300ms");
    assertEquals(code, 1);
    assertStringIncludes(stderr, "no packet was seen within 0.3 s");
    assertStringIncludes(stderr, "a new TCP connection or flow from 192.0.2.7");
  });

  await t.step("nothing is left, and no rule is another one", async () => {
    assertEquals(await stage.leftovers(), []);
    assertEquals(await mode?.state(stage.node), before);
  });
}

for (const mode of RULE_MODES) {
  const suite = `leftovers of a trace in ${mode.name}`;
  const ignore = isMissing(suite, [...REQUIREMENTS, ...mode.requirements()]);
  Deno.test({
    name: `${mode.name}: nothing is left of a trace that was ended`,
    ignore,
    fn: (t) => endedTraces(t, mode),
  });
}

/** A trace that waits and then ends: the signal, and its sender. */
async function endedTraces(t: Deno.TestContext, mode: RuleMode): Promise<void> {
  await using stage = await TraceStage.start(mode, writeServices);
  const before = await mode.state(stage.node);
  for (const signal of ["SIGINT", "SIGTERM", "SIGKILL"] as const) {
    await t.step(signal, async () => {
      await using trace = stage.startTrace(["192.0.2.7", `${clusterIp}:80`, "--wait=1m"]);
      await eventually("it waits", () => trace.errors.includes("Waiting for"));
      if (mode.othersUse === "nft") assert((await stage.leftovers()).length >= 2, "it watches");
      trace.signal(signal);
      assertEquals(
        (await trace.status()).code,
        { SIGINT: 130, SIGTERM: 143, SIGKILL: 137 }[signal],
      );
      await eventually("all is gone", async () => (await stage.leftovers()).length === 0);
      assertEquals(await mode.state(stage.node), before);
    });
  }
}

const ignore = isMissing("two traces at a time", [
  ...REQUIREMENTS,
  ...NFTABLES_MODE.requirements(),
]);

Deno.test({
  name: "two simultaneous traces see their own packets, and no rules change",
  ignore,
  async fn() {
    await using stage = await TraceStage.start(NFTABLES_MODE, writeServices);
    const foreign = "table inet others { chain output { type filter hook output priority 0; " +
      "ip daddr 192.0.2.200 drop; }; }\n";
    await loadNftables(stage.node, foreign);
    const rules = () => stage.node.output("nft", ["list", "table", "inet", "others"]);
    const before = await rules();
    const both = await Promise.all([
      stage.trace("node", `${clusterIp}:80`),
      stage.trace("node", `${clusterIp}:80`),
    ]);
    const [a, b] = both.map(succeeded);
    assert(a!.packet.sourcePort !== b!.packet.sourcePort);
    for (const { steps } of [a!, b!]) {
      assertEquals(steps.filter(({ place }) => place.endsWith("nat-output")).length, 1);
    }
    const { report } = await stage.trace("node", "192.0.2.200:80");
    assert(report?.outcome.kind === "dropped");
    assertEquals(report.outcome.by?.place, "inet others output");
    assertEquals([await rules(), await stage.leftovers()], [before, []]);
  },
});

Deno.test({
  name: "trace names the missing part: rights, or a running kube-relay",
  ignore,
  async fn() {
    await using stage = await TraceStage.start(NFTABLES_MODE, writeServices);
    const noRights = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    await using trace = stage.startTrace(["node", `${clusterIp}:80`], noRights);
    assertEquals((await trace.status()).code, 1);
    assertStringIncludes(trace.errors, "CAP_NET_ADMIN");
    await stage.relay.kill();
    const { code, stderr } = await stage.trace("node", `${clusterIp}:80`);
    assertEquals(code, 1);
    assertStringIncludes(stderr, "is it running?");
    assertEquals(await stage.leftovers(), []);
  },
});
