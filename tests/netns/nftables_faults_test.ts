/**
 * Tests the nftables mode with every change that other programs make to its table, with the
 * kernel's own answers.
 *
 * @module
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { SyncFailure } from "../../lib/engine/sync_failure.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import type { CompareStage } from "../support/stages/compare_stage.ts";
import { checkTable, createNftStage, nft } from "../support/stages/nft_kernel.ts";
import { foreignTables, loadNftables } from "../support/stages/nftables_tools.ts";
import { isMissing, program } from "../support/requirement.ts";
import { NFTABLES_MODE } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";
import { testServicePlan } from "../support/builders/service_plans.ts";
import { VIP } from "../support/builders/web_service.ts";

const ignore = isMissing("faults of nftables mode", [...netnsRequirements(), program("nft")]);

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

/**
 * Changes by other programs, as input of nft; `TABLE` is the table of kube-relay. A write over each of
 * them fails, or would leave it as it is, unless the start replaces the whole object.
 */
const ALTERATIONS: Readonly<Record<string, string>> = {
  "the table is flushed": "flush table TABLE",
  "a base chain drops": "chain TABLE nat-prerouting { policy drop ; }",
  "a base chain comes at another priority":
    "flush chain TABLE nat-output\ndelete chain TABLE nat-output\n" +
    "add chain TABLE nat-output { type nat hook output priority 7 ; }\n" +
    "add rule TABLE nat-output jump services",
  "the table is put to sleep": "add table TABLE { flags dormant ; }",
  "a map has other values": madeAnew("map endpoints", [
    "type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr",
  ]),
  "a map has other keys": madeAnew("map service-ips", ["type ipv4_addr : classid"]),
  "a set has room for two": madeAnew("set cluster-ips", ["type ipv4_addr", "size 2"]),
  "a range is added": "add element TABLE service-cidrs { 192.0.2.0/24 }",
};

/** Takes a set or map away and makes it with another declaration. Whatever names it has to go too. */
function madeAnew(what: string, declaration: readonly string[]): string {
  const naming = ["services", "unclaimed", "nat-postrouting", "check-source-ranges"];
  const choosing = ["off-cluster-2", "off-cluster-2-sticky-600"].flatMap((name) => [
    name,
    `node-port-${name.replace("off-cluster", "masquerade")}`,
  ]);
  const emptied = [...naming, ...choosing].map((name) => `flush chain TABLE ${name}`);
  const [kind, name] = what.split(" ");
  return [
    ...emptied,
    `delete ${kind} TABLE ${name}`,
    `add ${kind} TABLE ${name} { ${declaration.map((each) => `${each} ; `).join("")}}`,
  ].join("\n");
}

/** Longest that nft may take to write, where it hangs on purpose. */
const IMPATIENT_MS = 300;

Deno.test({
  name: "nftables faults: an older copy of the table is noticed without reading it",
  ignore,
  async fn() {
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
      () =>
        stage.logger.lines.some(({ message }) => message.includes("removed or replaced chains")),
    );
    await eventually("drift is reported", () => stage.drift.length > 0);
    await checkTable(stage, changed);
  },
});

Deno.test({
  name:
    "nftables faults: a start finds a table that other programs have altered, and quarantines no Service",
  ignore,
  async fn(t) {
    await using stage = await createStage();
    for (const [what, commands] of Object.entries(ALTERATIONS)) {
      await t.step(what, async () => {
        await loadNftables(stage.node, commands.replaceAll("TABLE", "ip kube-relay"));
        await stage.restart();
        assertEquals((await stage.sync(PLANS)).quarantined, []);
        await checkTable(stage, PLANS);
        assertEquals((await nft(stage, "list table ip kube-relay")).includes("dormant"), false);
      });
    }
  },
});

/** Failures of nft, as scripts of the shell that has its input. */
const FAILURES: Readonly<Record<string, string>> = {
  "is killed before it has read its input": "kill -9 $$",
  "is killed in the middle of its input": "head -c 40 | nft -f - ; kill -9 $$",
  "hangs": "exec sleep 60",
  "is killed after its work": "nft -f - ; kill -9 $$",
  "says nothing and fails": "exit 3",
};

Deno.test({
  name: "nftables faults: a table that nft can't list is replaced in the end",
  ignore,
  async fn() {
    await using stage = await createStage();
    await stage.restart();
    // Where this takes no listing down any more, the first one succeeds.
    await loadNftables(
      stage.node,
      "add map ip kube-relay strange { typeof jhash ip saddr mod 64 : meta priority ; }",
    );
    await eventually("it is written", () => stage.sync(CHANGED).then(() => true, () => false));
    await checkTable(stage, CHANGED);
  },
});

Deno.test({
  name: "nftables faults: a tool that dies or hangs costs one sync, and nothing is left half",
  ignore,
  async fn(t) {
    await using stage = await createStage();
    const foreign = await foreignTables(stage.node);
    for (const [what, script] of Object.entries(FAILURES)) {
      await t.step(what, async () => {
        stage.replaceWrites({ script, timeoutMs: IMPATIENT_MS });
        await assertRejects(() => stage.sync(CHANGED), SyncFailure);
        // Either all of it or nothing.
        const isThere = await checkTable(stage, CHANGED).then(() => true, () => false);
        if (!isThere) await checkTable(stage, PLANS);
        stage.replaceWrites(undefined);
        await stage.sync(CHANGED);
        await checkTable(stage, CHANGED);
        await stage.sync(PLANS);
        await checkTable(stage, PLANS);
        assertEquals(await foreignTables(stage.node), foreign);
        assertEquals(stage.drift, []);
      });
    }
  },
});

Deno.test({
  name: "nftables faults: a running kube-relay repairs damage that packets would notice",
  ignore,
  async fn() {
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
  },
});
