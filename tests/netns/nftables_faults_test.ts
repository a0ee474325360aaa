/**
 * Tests the nftables mode with every change that other programs make to its table, with the
 * kernel's own answers.
 */
import { assert, assertEquals } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import type { CompareStage } from "../support/stages/compare_stage.ts";
import { checkTable, createNftStage, nft } from "../support/stages/nft_kernel.ts";
import { foreignTables, loadNftables } from "../support/stages/nftables_tools.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { NFTABLES_MODE } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { testServicePlan } from "../support/builders/service_plans.ts";
import { VIP } from "../support/builders/web_service.ts";

const test = testNeeding("faults of nftables mode", [...netnsRequirements(), program("nft")]);

/**
 * Foreign tables: one with the same name in another family, one with a chain and a map with the
 * same names.
 */
const FOREIGN = `
table inet kube-relay {
  chain services { type filter hook input priority 5; counter; }
}
table ip other {
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 172.30.0.1 . tcp . 80 : accept } }
  chain nat-prerouting { type nat hook prerouting priority 50; meta mark 0x77 accept; }
}
`;

const PLANS: readonly ServicePlan[] = [1, 2, 3].map((number) =>
  testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.0.${number}`,
    nodePort: 30_000 + number,
    masqueradeInternal: "off-cluster",
    to: [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`],
    ...(number === 3 && { affinityTimeoutSeconds: 600 }),
  })
);

/** One has gone, one has another endpoint, one is new. */
const CHANGED: readonly ServicePlan[] = [
  testServicePlan({
    name: "service-2",
    clusterIp: "172.30.0.2",
    nodePort: 30_002,
    masqueradeInternal: "off-cluster",
    to: ["10.1.0.9:8080", "10.2.0.9:8080", "10.2.0.2:8080"],
  }),
  PLANS[2]!,
  testServicePlan({ name: "service-4", clusterIp: "172.30.0.4", to: [] }),
];

/** A node with foreign tables, whose own table has been written and read without differences. */
async function createStage(): Promise<CompareStage> {
  const stage = await createNftStage();
  await loadNftables(stage.node, FOREIGN);
  await stage.sync(PLANS);
  await verify(stage);
  return stage;
}

/** Has everything compared once more. */
async function verify(stage: CompareStage): Promise<void> {
  const reads = () => stage.calls.filter((call) => call.includes(" list table ")).length;
  const before = reads();
  stage.serving.recheck?.();
  await eventually("the table is read", () => reads() > before);
  await stage.sync(PLANS);
  stage.drift.length = 0;
}

test("nftables faults: an older copy of the table is noticed without reading it", async () => {
  await using stage = await createNftStage(500);
  await stage.sync(PLANS);
  const old = await nft(stage, "list ruleset");
  // No chain comes or goes by that.
  const changed = [PLANS[1]!, PLANS[2]!];
  await stage.sync(changed);
  const looks = () => stage.calls.filter((call) => call.includes(" list chains ")).length;
  const before = looks();
  await eventually("it looks after the table", () => looks() > before);
  await loadNftables(stage.node, `flush ruleset\n${old}`);
  // Each look comes before the reading that it may lead to.
  await eventually(
    "it says so",
    () => stage.logger.lines.some(({ message }) => message.includes("removed or replaced chains")),
  );
  await eventually("drift is reported", () => stage.drift.length > 0);
  await checkTable(stage, changed);
});

test("nftables faults: a table that nft can't list is replaced in the end", async () => {
  await using stage = await createStage();
  await stage.restart();
  // Where this takes no listing down any more, the first one succeeds.
  await loadNftables(
    stage.node,
    "add map ip kube-relay strange { typeof jhash ip saddr mod 64 : meta priority ; }",
  );
  await eventually("it is written", () => stage.sync(CHANGED).then(() => true, () => false));
  await checkTable(stage, CHANGED);
});

test("nftables faults: a running kube-relay repairs damage that packets would notice", async () => {
  await using stage = await RuleScene.create(NFTABLES_MODE);
  const { node } = stage;
  const relay = stage.start();
  await relay.settled();
  const state = await stage.state();
  const foreign = await foreignTables(node);
  const client = ProbeClient.start(stage.scene.cluster.client);
  const kept = await client.open(VIP);
  await loadNftables(node, "delete table ip kube-relay\ndelete table ip6 kube-relay");
  assert(await client.who(VIP, 300) !== "pod-a1", "clients notice");
  await eventually("it serves again", async () => await client.who(VIP, 300) === "pod-a1");
  await eventually(
    "the tables are as they were",
    async () => JSON.stringify(await stage.state()) === JSON.stringify(state),
  );
  assertEquals(await kept.who(), "pod-a1", "an open connection goes on");
  assertEquals(await foreignTables(node), foreign);
  await relay.logged("Another program removed or replaced chains of nftables");
  await relay.stop();
});
