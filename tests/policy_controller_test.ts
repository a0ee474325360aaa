/**
 * Tests NetworkPolicies in a whole run, with fake data planes: sources, changes, failures,
 * takeover, and reports.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { changesReport } from "../lib/tools/changes/changes_view.ts";
import type { RawObject } from "./conformance/server.ts";
import { askControl, askControlText } from "../lib/tools/control/control_client.ts";
import type { DeniedPackets } from "../lib/policy/policy_plan.ts";
import { PolicyState } from "../lib/policy/policy_state.ts";
import { INPUT_PART } from "../lib/tools/dump/dump_schema.ts";
import { parseDump } from "../lib/tools/dump/read_dump.ts";
import { paintText } from "../lib/tools/report.ts";
import { agesAt, statusAnswer } from "../lib/tools/status/status_answer.ts";
import { NO_COMMANDS, runInProcess } from "./support/drivers/command_line.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { missingFeature } from "./support/fakes/fake_host_checks.ts";
import { onlyFrom, PolicyRelay, rawPod, rawPolicy } from "./support/stages/policy_relay.ts";

const WEB = "10.1.0.2";
const FRIEND = "10.1.0.3";
const OTHER = "10.1.0.4";

const PODS = [
  rawPod("web", WEB, { app: "web" }),
  rawPod("friend", FRIEND, { app: "friend" }),
  rawPod("other", OTHER, { app: "other" }),
];
const MANIFESTS = { "pods.yaml": PODS, "policy.yaml": [onlyFrom("friend")] };

Deno.test("policies of a folder of manifests are enforced, changed and reported", async (t) => {
  await using relay = await PolicyRelay.start({ manifests: MANIFESTS });
  await relay.synced();
  const { plane } = relay;
  assertEquals([plane.allows(FRIEND, WEB), plane.allows(OTHER, WEB)], [true, false]);

  await t.step("a changed policy", async () => {
    await relay.write("policy.yaml", [onlyFrom("other")]);
    await relay.until("it is in force", () => plane.allows(OTHER, WEB));
    assertEquals(plane.allows(FRIEND, WEB), false);
  });
  await t.step("a changed pod touches its sets only", async () => {
    const before = plane.syncs.length;
    await relay.write("pods.yaml", [...PODS.slice(0, 2), rawPod("other", OTHER, { app: "x" })]);
    await relay.until("it is in force", () => !plane.allows(OTHER, WEB));
    const { full, pods, lists, peers, members } = plane.syncs[before]!;
    assertEquals([full, pods.size, lists.size, peers.size], [false, 0, 0, 0]);
    assertEquals([...members.values()], [{ added: [], removed: [OTHER] }] as never);
  });
  await t.step("the status", async () => {
    await relay.synced();
    const status = await relay.status();
    const [controller] = status.controllers!;
    assertEquals(controller!.facts, [
      { name: "Policies", text: "1, for 3 pods of the cluster" },
      { name: "Tool", text: "nftables" },
      {
        name: "Rules",
        text: "IPv4: 1 pod isolated for ingress, 0 for egress; 1 rule list, 1 set with 0 members",
      },
      { name: "Relayed", text: "connections are judged by the address of the client" },
    ]);
    const text = paintText(statusAnswer(status, { time: agesAt(Date.now()) }), { columns: 100 });
    assertStringIncludes(text, "network-policy\n  Policies  1, for 3 pods of the cluster\n");
    assertStringIncludes(text, "IPv4      fake rules of IPv4");
  });
  await t.step("the change log", async () => {
    const changes = await askControl(relay.socket, "/changes");
    const text = paintText(changesReport(changes, { timeZone: "UTC" }), { columns: 100 });
    assertStringIncludes(text, "network-policy: First sync");
    assertStringIncludes(text, "pod default/web added: ingress isolated by 1 policy");
    assertStringIncludes(text, "Pod default/other updated\n");
    assertStringIncludes(text, "1 set of peers: 1 member gone");
    assertStringIncludes(text, "NetworkPolicy default/web updated\n");
    assertStringIncludes(text, "2 sets of peers: 1 new, 1 gone");
  });
  await t.step("the metrics", async () => {
    const lines = await relay.metrics();
    assert(lines.includes('kube_relay_network_policies{ip_family="IPv4"} 1'));
    relay.planes[0]!.denied = { ingress: 17, egress: 1 };
    const { controllers: [withDenied] = [] } = await relay.status();
    const denied = withDenied!.facts.find(({ name }) => name === "Denied");
    assertEquals(denied?.text, "IPv4: 17 packets to pods, 1 packet from pods");
    const count =
      'kube_relay_network_policy_denied_packets_total{ip_family="IPv4",direction="ingress"} 17';
    assert((await relay.metrics()).includes(count));
    // The tool reads the node's rules first, which may be very many.
    const slow = Promise.withResolvers<DeniedPackets>();
    relay.planes[0]!.denied = slow.promise;
    const { controllers: [whileSlow] = [] } = await relay.status();
    assertEquals(whileSlow!.facts.find(({ name }) => name === "Denied"), denied);
    assert((await relay.metrics()).includes(count));
    slow.resolve({ ingress: 18, egress: 1 });
    await relay.until("the next reading is shown", async () => {
      return (await relay.metrics()).includes(count.replace(/17$/, "18"));
    });
    const pods = 'kube_relay_network_policy_isolated_pods{ip_family="IPv4",direction="ingress"} 1';
    assert(lines.includes(pods), lines.join("\n"));
    const syncs = plane.syncs.length;
    plane.onDrift?.({ kind: "rule", found: 3, repaired: 2 });
    await relay.until("what a repair left out is tried", () => plane.syncs.length > syncs);
    const drift = 'controller="network-policy",ip_family="IPv4",kind="rule"';
    assert((await relay.metrics()).includes(`kube_relay_drift_found_total{${drift}} 3`));
  });
  await t.step("explain, of pods by name", async () => {
    for (const from of [`default/${FRIEND}`, `default/${OTHER}`]) {
      // The status page asks briefly.
      const ends = { from, to: "default/web:80", ...(from.endsWith(FRIEND) && { brief: "" }) };
      const { packets: [packet] } = await askControl(relay.socket, "/explain", ends);
      assertEquals([packet?.packet.to, packet?.policies?.isDenied], [WEB as never, true]);
    }
    const argv = ["explain", "default/friend", "default/web", `--control-socket=${relay.socket}`];
    const portless = await runInProcess(argv, { commands: NO_COMMANDS });
    assertEquals([portless.code, portless.out], [2, ""], "as without a running process");
    assertStringIncludes(portless.err, "as in NAMESPACE/POD:80");
  });
  await t.step("the dump, which its reader keeps", async () => {
    const text = await askControlText(relay.socket, "/dump");
    const { objects, controllers, configuration } = parseDump(text, "it", INPUT_PART);
    assertEquals(objects.pods?.length, 3);
    assertEquals(objects.networkpolicies?.length, 1);
    assertEquals(controllers?.["network-policy"]?.families, ["IPv4"]);
    const { deny, minSyncPeriod } = configuration.proxy.networkPolicy as Record<string, unknown>;
    assertEquals([deny, minSyncPeriod], ["reject", "20ms"]);
    assertEquals(text.includes('"kubeconfig"'), false);
  });
  await t.step("a policy that is deleted", async () => {
    await relay.write("policy.yaml", []);
    await relay.until("nothing is isolated", () => plane.allows(OTHER, WEB));
  });
});

Deno.test("changes of policies do not wait for the minimum period of Services", async () => {
  const args = ["--iptables-sync-period=1h", "--iptables-min-sync-period=1h"];
  await using relay = await PolicyRelay.start({ manifests: MANIFESTS, args });
  await relay.synced();
  // More changes than the two that never wait.
  for (const app of ["other", "friend", "other", "friend"]) {
    await relay.write("policy.yaml", [onlyFrom(app)]);
    const [allowed, denied] = app === "other" ? [OTHER, FRIEND] : [FRIEND, OTHER];
    await relay.until(`${app} is allowed`, () => relay.plane.allows(allowed, WEB));
    assertEquals(relay.plane.allows(denied, WEB), false);
  }
});

Deno.test("a policy with a fault is reported and isolates; the others are enforced", async () => {
  const broken = rawPolicy("broken", {
    podSelector: { matchLabels: { app: "other" } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchExpressions: [{ key: "a", operator: "In" }] } }] }],
  });
  await using api = await FakeApiServer.start();
  for (const object of [...PODS, broken, onlyFrom("friend")]) api.store.create(object);
  await using relay = await PolicyRelay.start({ api });
  await relay.until("policies are in force", () => relay.plane?.plan !== undefined);
  const { plane } = relay;
  assertEquals([plane.allows(FRIEND, WEB), plane.allows(OTHER, WEB)], [true, false]);
  assertEquals(plane.allows(FRIEND, OTHER), false, "the faulty policy allows nothing");
  const { controllers, sources } = await relay.status();
  assertStringIncludes(controllers![0]!.facts[0]!.text, "1 with parts that cannot be used");
  assert((await relay.metrics()).includes('kube_relay_network_policy_problems{kind="policy"} 1'));
  assert(sources.some(({ name }) => name === "access for NetworkPolicies"));
  assert(relay.lines.some((line) => line.includes("default/broken")), relay.lines.join("\n"));

  api.store.create(rawPolicy("all", { podSelector: {}, policyTypes: ["Ingress"] }));
  await relay.until("a new policy is in force", () => plane.plan!.lists.size === 3);
});

Deno.test("ClusterNetworkPolicies are followed once the cluster has them, and Nodes once one names nodes", async () => {
  await using api = await FakeApiServer.start();
  for (const object of PODS) api.store.create(object);
  const path = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
  api.setMissing(path, 404);
  await using relay = await PolicyRelay.start({ api });
  await relay.until("policies are in force", () => relay.plane?.plan !== undefined);
  const { plane } = relay;
  const sourcesOf = async (kind: string) =>
    (await relay.status()).sources.filter(({ name }) => name === kind);
  const [absent] = await sourcesOf("ClusterNetworkPolicy");
  const ofServices = (await sourcesOf("Node")).length;
  assertStringIncludes(absent!.state, "unavailable");
  assertEquals(absent!.problems, []);
  assert(!relay.lines.some((line) => line.includes("Continuing without objects")));

  api.setMissing(path, undefined);
  const admin = (name: string, rules: object): RawObject => ({
    apiVersion: "policy.networking.k8s.io/v1alpha2",
    kind: "ClusterNetworkPolicy",
    metadata: { name },
    spec: { tier: "Admin", priority: 7, subject: { namespaces: {} }, ...rules },
  });
  const podSelector = { matchLabels: { app: "friend" } };
  const from = [{ pods: { namespaceSelector: {}, podSelector } }];
  const others = [{ namespaces: {} }];
  api.store.create(admin("no-friends", {
    ingress: [{ name: "friends", action: "Deny", from }, { action: "Accept", from: others }],
  }));
  await relay.until("it is in force", () => !plane.allows(FRIEND, WEB));
  assertEquals([plane.allows(OTHER, WEB), (await sourcesOf("Node")).length], [true, ofServices]);
  const explain = async (from: string) => {
    const ends = { from: `default/${from}`, to: "default/web:80" };
    const { packets: [packet] } = await askControl(relay.socket, "/explain", ends);
    return packet!.policies!.answer;
  };
  assertEquals(await explain("other"), "ALLOWED by ClusterNetworkPolicy no-friends");
  assertStringIncludes(
    (await explain("friend"))!,
    'ClusterNetworkPolicy no-friends (tier Admin) denies it into default/web: spec.ingress[0] "friends"',
  );

  api.store.create(admin("no-nodes", { egress: [{ action: "Deny", to: [{ nodes: {} }] }] }));
  await relay.until(
    "Nodes are followed",
    async () => (await sourcesOf("Node")).length > ofServices,
  );
  api.store.create({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: "far", labels: { role: "edge" } },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.77" }] },
  });
  await relay.until("its address is denied", () => !plane.allows(WEB, "192.0.2.77"));
  const { controllers } = await relay.status();
  assertEquals(controllers![0]!.facts.filter(({ name }) => /Cluster|Equal/.test(name)), [
    { name: "Cluster", text: "2 in tier Admin, 0 in tier Baseline" },
    { name: "Equal", text: "tier Admin, priority 7: no-friends, no-nodes; they count by name" },
  ]);
  assert((await relay.metrics()).includes('kube_relay_cluster_network_policies{tier="Admin"} 2'));
  const dump = parseDump(await askControlText(relay.socket, "/dump"), "it", INPUT_PART);
  assertEquals(dump.objects.clusternetworkpolicies?.length, 2);
  assertEquals(dump.controllers?.["network-policy"]?.nodes?.length, 1);
});

Deno.test("Services do not wait for policies that may not be read; those wait for their rights", async () => {
  await using api = await FakeApiServer.start();
  for (const object of [...PODS, onlyFrom("friend")]) api.store.create(object);
  api.deniedAccess.add("list /api/v1/pods");
  await using relay = await PolicyRelay.start({ api });
  await relay.until("Services are synced", async () => {
    const { families: [family], sources } = await relay.status();
    return family?.lastSync !== undefined &&
      sources.some(({ state }) => state === "missing; no NetworkPolicy is enforced");
  });
  assertEquals(relay.plane.plan, undefined);
});

Deno.test("a change that cannot be taken is logged, and the next ones are taken", async () => {
  await using relay = await PolicyRelay.start({ manifests: MANIFESTS });
  await relay.synced();
  const take = PolicyState.prototype.setPolicy;
  PolicyState.prototype.setPolicy = () => {
    throw new Error("no room for it");
  };
  try {
    await relay.write("policy.yaml", [onlyFrom("nobody")]);
    await relay.until("it is logged", () => relay.lines.some((line) => line.includes("no room")));
  } finally {
    PolicyState.prototype.setPolicy = take;
  }
  await relay.write("policy.yaml", [onlyFrom("other")]);
  await relay.until("the next one is in force", () => relay.plane.allows(OTHER, WEB));
});

Deno.test("a change of a failed sync is applied by the next one", async () => {
  await using relay = await PolicyRelay.start({
    manifests: MANIFESTS,
    onPlane: ({ failures }) => failures.push(new Error("nft is busy"), new Error("nft is busy")),
  });
  await relay.synced();
  assertEquals(relay.plane.allows(OTHER, WEB), false);
  assertEquals(relay.plane.syncs.map(({ full }) => full), [true, true, true]);
  relay.plane.failures.push(new Error("nft is busy"));
  await relay.write("pods.yaml", [...PODS, rawPod("late", "10.1.0.9", { app: "friend" })]);
  await relay.until("it is in force", () => relay.plane.allows("10.1.0.9", WEB));
  assertEquals(relay.plane.syncs.length, 5);
});

Deno.test("--takeover removes other rules once policies are in force in every family", async () => {
  const hanging = Promise.withResolvers<void>();
  await using relay = await PolicyRelay.start({
    manifests: MANIFESTS,
    families: ["IPv4", "IPv6"],
    args: ["--takeover"],
    onPlane: (plane) => void (plane.family === "IPv6" && (plane.hanging = hanging.promise)),
  });
  await relay.until("IPv4 is in force", () => relay.plane?.plan !== undefined);
  assertEquals(relay.takenOver, []);
  hanging.resolve();
  await relay.until("it is taken over", () => relay.takenOver.length > 0);
  assertEquals(relay.takenOver, ["in force", "in force"]);
  const removed = relay.lines.filter((line) => line.includes("policy rules of another tool"));
  assertEquals(removed.map((line) => /what="?(.*?)"?$/.exec(line)?.[1]), [
    "old rules of IPv4",
    "old rules of IPv6",
  ]);
});

Deno.test("settings of policies in the configuration file are taken up while it runs", async () => {
  const folder = await Deno.makeTempDir();
  const config = `${folder}/config.yaml`;
  const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
  await Deno.writeTextFile(config, `${head}networkPolicy: {enabled: true}\n`);
  await using relay = await PolicyRelay.start({
    manifests: MANIFESTS,
    args: [`--config=${config}`],
  });
  await relay.synced();
  assertEquals(relay.plane.plan?.deny, { action: "reject" });
  await Deno.writeTextFile(
    config,
    `${head}networkPolicy: {enabled: true, deny: drop, logPerMinute: 10}\n`,
  );
  const isDrop = () => relay.plane.plan?.deny.action === "drop";
  await relay.until("denied packets are dropped", isDrop);
  assertEquals(relay.plane.plan?.deny, { action: "drop", log: { perMinute: 10, group: 100 } });
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a tool that was named and is missing is not replaced, and Services work", async () => {
  await using relay = await PolicyRelay.start({
    manifests: MANIFESTS,
    args: ["--network-policy-mode=nftables"],
    host: { probes: { nftables: [missingFeature("nft")] } },
    onPlane: (plane) => plane.start = () => Promise.reject(new Error("no nft")),
  });
  await relay.until("the failure is reported", async () => {
    const { controllers, families } = await relay.status();
    const [loop] = controllers?.[0]?.families ?? [];
    return loop?.lastError === "no nft" && families[0]?.lastSync !== undefined;
  });
  assert(relay.lines.some((line) => line.includes("enforced for relayed connections only")));
  const { controllers } = await relay.status();
  assert(controllers![0]!.facts.some(({ text }) => text.includes("pod-to-pod traffic")));
});
