import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import { SyncFailure } from "../../lib/engine/sync_event.ts";
import { goldenNftMeaning, NftablesStage } from "../../tests/support/stages/nftables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { testPlanChanges, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { NftError } from "../netfilter/nft/nft_runner.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { servicesTable } from "./containers.ts";

/** The number-th ServicePort, with two endpoints by default. */
function service(number: number, to = [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`]) {
  return testServicePlan({ name: `web-${number}`, clusterIp: `172.30.0.${number}`, to });
}

const TWENTY = Array.from({ length: 20 }, (_, index) => service(index + 1));
const PLAN = rulesPlan(TWENTY);
const READ = "nft --debug=netlink --numeric-protocol list table ip kube-relay";
const WRITE = "nft -f -";

async function started(): Promise<NftablesStage> {
  const stage = new NftablesStage();
  await stage.backend.start();
  return stage;
}

/** Returns the commands that an action runs, without their input. */
async function commandsOf(
  { machine: { commands } }: NftablesStage,
  action: () => Promise<unknown>,
) {
  const before = commands.calls.length;
  await action();
  return commands.calls.slice(before).map(({ line }) => line);
}

Deno.test("new NftablesBackend() runs nothing before start(), and cannot sync before", async () => {
  await using stage = new NftablesStage();
  assertEquals(stage.machine.commands.calls, []);
  await assertRejects(() => stage.sync(PLAN), Error, "start() has not succeeded");
  assertEquals((await stage.backend.inspect()).summary, "not started");
});

Deno.test("NftablesBackend reads once, and needs one transaction for each change", async () => {
  await using stage = await started();
  assertEquals(await commandsOf(stage, () => stage.sync(PLAN)), [READ, WRITE]);
  assertEquals(stage.meaning, goldenNftMeaning(PLAN));
  const changed = rulesPlan([service(1, ["10.3.0.1:80"]), ...TWENTY.slice(1)]);
  assertEquals(await commandsOf(stage, () => stage.sync(changed)), [WRITE]);
  assertEquals(stage.meaning, goldenNftMeaning(changed));
  assertEquals(await commandsOf(stage, () => stage.sync(changed)), [], "nothing has changed");
});

Deno.test("NftablesBackend reports its writes", async () => {
  await using stage = await started();
  const first = await stage.sync(PLAN);
  assertEquals([first.full, first.services], [true, 20]);
  assertEquals([first.operations["reads"], first.operations["transactions"]], [1, 1]);
  const { full, services, operations } = await stage.sync(rulesPlan(TWENTY.slice(1)));
  assertEquals([full, services], [false, 1]);
  // Its address, its two endpoints, and that the address is taken.
  assertEquals([operations["reads"], operations["elements"]], [undefined, 4]);
});

Deno.test("NftablesBackend quarantines ServicePorts with refused elements, and applies the others", async () => {
  await using stage = await started();
  await stage.sync(rulesPlan(TWENTY.slice(5)));
  stage.machine.judge = (line) =>
    /^ {2}172\.30\.0\.[23] .* : 10\./.test(line) ? "Invalid argument" : undefined;
  const report = await stage.sync(PLAN);
  const bad = [service(2), service(3)].map(({ key }) => key);
  assertEquals(report.quarantined.map(({ key }) => key).sort(), bad);
  assertStringIncludes(report.quarantined[0]!.reason, 'The kernel refused "172.30.0.');
  assertStringIncludes(report.quarantined[0]!.reason, "Invalid argument");
  const others = rulesPlan(TWENTY.filter(({ key }) => !bad.includes(key)));
  assertEquals(stage.meaning, goldenNftMeaning(others));
  assert((await stage.backend.counting!.ruleCounters()).failedWrites >= 1);
  const { quarantined } = await stage.backend.inspect();
  assertEquals(quarantined, report.quarantined);
  assertEquals((await stage.backend.inspect([service(1).key])).quarantined, []);

  assertEquals(
    await commandsOf(stage, () => stage.sync(PLAN)),
    [],
    "it is not tried again at once",
  );
  stage.machine.judge = () => undefined;
  await stage.wait();
  assertEquals((await stage.sync(PLAN)).quarantined, []);
  assertEquals(stage.meaning, goldenNftMeaning(PLAN));
});

Deno.test("NftablesBackend names the refused elements if nothing could be written", async () => {
  await using stage = await started();
  stage.machine.judge = (line) => line.includes("masquerade") ? "No such file" : undefined;
  const error = await assertRejects(() => stage.sync(PLAN), SyncFailure);
  assertEquals([error.full, error.cause instanceof NftError], [true, true]);
  for (const words of ["line ", "nat-postrouting", "No such file"]) {
    assertStringIncludes(error.message, words);
  }
  assertEquals(stage.machine.tool.tables, []);
  stage.machine.judge = () => undefined;
  assertEquals((await stage.sync(PLAN)).quarantined, []);
  assertEquals(stage.meaning, goldenNftMeaning(PLAN));
});

Deno.test("NftablesBackend counts failures of partial syncs separately", async () => {
  await using stage = await started();
  stage.machine.commands.failCall(stage.machine.commands.calls.length + 2, { code: 134 });
  await assertRejects(() => stage.sync(PLAN), SyncFailure);
  assertEquals(await stage.backend.counting!.ruleCounters(), {
    failedWrites: 1,
    failedCleanups: 0,
    failedPartialWrites: 0,
  });
  await stage.sync(PLAN);
  stage.machine.commands.failNext({ code: 134 });
  const error = await assertRejects(
    () => stage.sync(rulesPlan(TWENTY.slice(1))),
    SyncFailure,
  );
  assertEquals(error.full, false);
  const { failedWrites, failedPartialWrites } = await stage.backend.counting!.ruleCounters();
  assertEquals([failedWrites, failedPartialWrites], [2, 1]);
});

Deno.test("NftablesBackend serves all other Services on a kernel without maps that rules fill", async () => {
  await using stage = new NftablesStage();
  stage.machine.judge = (line) => line.includes("update @") ? "Not supported" : undefined;
  await stage.backend.start();
  const sticky = { ...service(3), affinityTimeoutSeconds: 60 };
  const { quarantined } = await stage.sync(rulesPlan([service(1), sticky]));
  assertEquals(quarantined.map(({ key }) => key), [sticky.key]);
  assertStringIncludes(quarantined[0]!.reason, "Cannot express session affinity");
  assertEquals(stage.meaning, goldenNftMeaning(rulesPlan([service(1)])));
});

Deno.test("NftablesBackend drops instead of rejecting on a kernel without reject", async () => {
  await using stage = new NftablesStage();
  stage.machine.judge = (line) => / reject$/.test(line) ? "No such file" : undefined;
  await stage.backend.start();
  assertEquals((await stage.sync(rulesPlan([service(1, [])]))).quarantined, []);
  const { chains } = stage.machine.tool.table("ip kube-relay");
  assertEquals(chains.get("reject-all"), ["drop"]);
});

Deno.test("NftablesBackend requests route_localnet only if loopback is asked for", () => {
  const stage = new NftablesStage();
  const requests = (nodePorts: NodePortAddresses) =>
    stage.backend.hostSettings(nodePorts).map(({ name, value }) => `${name}=${value}`);
  assertEquals(requests({ kind: "all" }), []);
  assertEquals(requests({ kind: "cidrs", cidrs: [parseCidr("127.0.0.0/8")] }), [
    "net.ipv4.conf.all.route_localnet=1",
  ]);
});

Deno.test("NftablesBackend writes all rules again, and reads once, when settings of all rules change", async () => {
  await using stage = await started();
  await stage.sync(PLAN);
  const rules = (chain: string) =>
    stage.machine.tool.table("ip kube-relay").chains.get(chain)?.join() ?? "";
  assertStringIncludes(rules("services"), "fib daddr type local");
  const nodePortRanges = { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] } as const;
  const moved = { ...PLAN, shared: { ...PLAN.shared, nodePortRanges } };
  const { full, operations } = await stage.sync(moved);
  assertEquals([full, operations["reads"]], [true, 1]);
  assertStringIncludes(rules("services"), "@node-port-ips");
  const pods = { kind: "byCidr", cidr: parseCidr("10.1.0.0/16") } as const;
  const detected = { ...moved, shared: { ...moved.shared, localTraffic: pods } };
  const again = await stage.sync(detected);
  assertEquals([again.full, again.operations["reads"]], [true, 1]);
});

Deno.test("NftablesBackend accepts ranges of Services without reading anything", async () => {
  await using stage = await started();
  await stage.sync(PLAN);
  const serviceCidrs = [parseCidr("172.30.0.0/16")];
  const { full, operations } = await stage.sync({
    ...PLAN,
    shared: { ...PLAN.shared, serviceCidrs },
  });
  assertEquals([full, operations["reads"], operations["elements"]], [false, undefined, 1]);
});

Deno.test("NftablesBackend tries what was refused at once if it changed, if all rules do, and if it came back", async () => {
  const serviceCidrs = [parseCidr("172.30.0.0/16")];
  const ranges = { ...PLAN, shared: { ...PLAN.shared, serviceCidrs } };
  const next = (bad: ServicePlan) => rulesPlan([bad, ...TWENTY.slice(1)]);
  const same = next(TWENTY[0]!);
  for (const others of [[next({ ...TWENTY[0]! })], [ranges], [rulesPlan(TWENTY.slice(1)), same]]) {
    await using stage = await started();
    stage.machine.judge = (line) => line.includes("10.1.0.1 . 8080") ? "why" : undefined;
    await stage.sync(PLAN);
    assertEquals((await stage.sync(PLAN)).quarantined.length, 1, "too early");
    stage.machine.judge = () => undefined;
    for (const other of others) await stage.sync(other);
    assertEquals((await stage.backend.inspect([])).quarantined, []);
    assertEquals((await stage.backend.inspect()).quarantined, []);
  }
});

Deno.test("NftablesBackend skips a ServicePort that the plan no longer has", async () => {
  await using stage = await started();
  await stage.sync(PLAN);
  const changes = { ...testPlanChanges(PLAN, PLAN), upserted: new Set([service(99).key]) };
  assertEquals((await stage.backend.sync(PLAN, changes)).operations, {});
});

Deno.test("NftablesBackend does not read a table of 10,000 ServicePorts in its first minutes", async () => {
  await using stage = await started();
  const many = Array.from({ length: 10_000 }, (_, index) =>
    testServicePlan({
      name: `many-${index}`,
      clusterIp: `172.31.${index >> 8}.${index & 255}`,
      to: ["10.1.0.1:80"],
    }));
  await stage.sync(rulesPlan(many));
  const reads = async (ms: number) =>
    (await commandsOf(stage, () => stage.pass(ms))).filter((line) => line === READ).length;
  assertEquals(await reads(299_000), 0);
  assertEquals(await reads(10_000), 1);
});

Deno.test("NftablesBackend removes unused chains, and does not count them as drift", async () => {
  await using stage = await started();
  await stage.sync(rulesPlan([service(1)]));
  await stage.sync(rulesPlan([service(1, ["10.1.0.1:8080"])]));
  const chains = () => [...stage.machine.tool.table("ip kube-relay").chains.keys()];
  assertEquals(chains().filter((name) => name.startsWith("to-")), ["to-2", "to-1"]);
  await stage.pass(301_000);
  assertEquals(chains().filter((name) => name.startsWith("to-")), ["to-1"]);
  assertEquals([stage.drift, stage.warnings], [[], []]);
});

const OURS = "table ip kube-relay (nftables)";
/** Removes the table of kube-relay by these commands. */
async function cleanUp(commands: FakeCommandRunner): Promise<CleanupReport> {
  const run = new RemovalRun({ commands }, { dryRun: false });
  await run.removeTable(servicesTable("IPv4"));
  return run.report();
}

/** A machine that serves a Service, with foreign tables. */
async function served(): Promise<NftablesStage> {
  const stage = new NftablesStage();
  for (const table of ["ip other", "ip6 kube-relay"]) {
    stage.machine.tool.run(`add table ${table}\nadd chain ${table} foreign\n`);
  }
  await stage.backend.start();
  await stage.sync(rulesPlan([testServicePlan({ to: ["10.0.0.1:80"] })]));
  return stage;
}

Deno.test("removeTable() changes nothing in a dry run, and reports the removal", async () => {
  await using stage = await served();
  const { removed, commands } = await stage.backend.previewCleanup!();
  assertEquals(removed, [OURS]);
  assertEquals(commands, [
    "nft -f - <<'EOF'\nadd table ip kube-relay\ndelete table ip kube-relay\nEOF\n",
  ]);
  assert(stage.machine.tool.tables.includes("ip kube-relay"));
});

Deno.test("removeTable() reports nothing without nft", async () => {
  const commands = new FakeCommandRunner().failCall(1, "not-found");
  assertEquals((await cleanUp(commands)).removed, []);
  const missing = new FakeCommandRunner().on("nft", { code: 127, stderr: "nft: not found" });
  assertEquals(await cleanUp(missing), { removed: [], failed: [] });
});

Deno.test("removeTable() leaves to root a table that a plain user may not read", async () => {
  const stderr = "Operation not permitted (you must be root)\n";
  const commands = new FakeCommandRunner().on("nft --handle list chains", { code: 1, stderr });
  const { failed, kept } = await cleanUp(commands);
  assertEquals([failed, kept?.length], [[], 1]);
  assertStringIncludes(kept?.[0] ?? "", "table ip kube-relay: not checked, which needs root");
});

Deno.test("removeTable() reports a table that it cannot read or remove", async () => {
  const hung = new FakeCommandRunner().failCall(1, "timeout");
  assertEquals((await cleanUp(hung)).failed.length, 1);
  await using stage = await served();
  stage.machine.judge = (line) => line.startsWith("delete table") ? "Device busy" : undefined;
  const { failed, removed } = await stage.backend.cleanup();
  assertEquals([failed.length, removed], [1, []]);
  assertStringIncludes(failed[0] ?? "", "table ip kube-relay: ");
  assertStringIncludes(failed[0] ?? "", "Device busy");
  assert(stage.machine.tool.tables.includes("ip kube-relay"));
});

Deno.test("removeTable() removes the counting table too, whether the other one exists or not", async () => {
  const counts = "table ip kube-relay-counters (nftables)";
  for (const others of [[], ["ip kube-relay"]]) {
    await using stage = new NftablesStage();
    const { machine } = stage;
    for (const table of [...others, "ip kube-relay-counters", "ip6 kube-relay-counters"]) {
      machine.tool.run(`add table ${table}\nadd chain ${table} count\n`);
    }
    const { removed } = await stage.backend.cleanup();
    assertEquals(removed, [...(others.length > 0 ? [OURS] : []), counts]);
    assertEquals(machine.tool.tables, ["ip6 kube-relay-counters"]);
  }
});
