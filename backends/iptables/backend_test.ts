import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  goldenMeaning,
  IptablesStage,
  meaningOf,
} from "../../tests/support/stages/iptables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { SyncFailure } from "../../lib/engine/sync_event.ts";

/** The number-th ServicePort, with two endpoints by default. */
function service(number: number, to = [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`]) {
  return testServicePlan({ name: `web-${number}`, clusterIp: `172.30.0.${number}`, to });
}

const TWENTY = Array.from({ length: 20 }, (_, index) => service(index + 1));
const PLAN = rulesPlan(TWENTY);

async function started(): Promise<IptablesStage> {
  const stage = new IptablesStage();
  await stage.backend.start();
  return stage;
}

/** Programs that an action runs, without their input. */
async function programsOf(
  { machine: { commands } }: IptablesStage,
  action: () => Promise<unknown>,
) {
  const before = commands.calls.length;
  await action();
  return commands.calls.slice(before).map(({ program }) => program);
}

Deno.test("new IptablesBackend() runs nothing before start(), and cannot sync before", async () => {
  await using stage = new IptablesStage();
  assertEquals(stage.machine.commands.calls, []);
  await assertRejects(() => stage.sync(PLAN), Error, "start() has not succeeded");
});

Deno.test("IptablesBackend needs one restore for a full sync, and one for a change", async () => {
  await using stage = await started();
  assertEquals(await programsOf(stage, () => stage.sync(PLAN)), ["iptables-restore"]);
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(PLAN));
  const changed = rulesPlan([service(1, ["10.3.0.1:80"]), ...TWENTY.slice(1)]);
  assertEquals(await programsOf(stage, () => stage.sync(changed)), ["iptables-restore"]);
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(changed));
  assertEquals(await programsOf(stage, () => stage.sync(changed)), [], "nothing has changed");
});

Deno.test("IptablesBackend reports its writes", async () => {
  await using stage = await started();
  const first = await stage.sync(PLAN);
  assertEquals([first.full, first.services, first.operations["restores"]], [true, 20, 1]);
  const { nat } = first.rules!;
  const total = nat!.total;
  assert(total > 40 && nat!.last === total);
  const changed = rulesPlan(TWENTY.slice(1));
  const { full, services, rules } = await stage.sync(changed);
  assertEquals([full, services], [false, 1]);
  assertEquals([rules!.nat!.total < total, rules!.nat!.last < total], [true, true]);
});

Deno.test("IptablesBackend names Services in comments, but not among more than a thousand", async () => {
  await using stage = await started();
  const many = Array.from({ length: 1001 }, (_, index) =>
    testServicePlan({
      name: `many-${index}`,
      clusterIp: `172.31.${index >> 8}.${index & 255}`,
      to: ["10.1.0.1:80"],
    }));
  const named = () => stage.machine.rules(/ns\/many-\d+ cluster IP/).length;
  const counts: number[] = [];
  for (const count of [1000, 1001, 600, 500]) {
    await stage.sync(rulesPlan(many.slice(0, count)));
    counts.push(named());
    assertEquals(stage.backend.facts()?.features.serviceComments, named() > 0);
  }
  assertEquals(counts, [1000, 0, 0, 500]);
});

/** A plan of these ServicePorts in a cluster whose ranges are known. */
function rangedPlan(services: readonly ServicePlan[]): ProxyPlan {
  const plan = rulesPlan(services);
  return { ...plan, shared: { ...plan.shared, serviceCidrs: [parseCidr("172.30.0.0/16")] } };
}

Deno.test("IptablesBackend masquerades cluster IPs by their range until a Service forbids it", async () => {
  await using stage = await started();
  const masqueradeInternal = "off-cluster";
  const web = { ...service(1), masqueradeInternal } as const;
  const keeps = {
    ...testServicePlan({ name: "keeps", externalIps: ["172.30.9.9"], to: ["10.1.0.4:80"] }),
    externalTrafficPolicy: "Local" as const,
  };
  const form = () => [
    stage.machine.rules(/-d 172\.30\.0\.1 .*KUBE-MARK-MASQ/).length,
    stage.machine.rules(/--ctorigdst 172\.30\.0\.0\/16 .*MASQUERADE/).length,
    stage.backend.facts()?.features.masqueradesRanges,
  ];
  await stage.sync(rangedPlan([web]));
  assertEquals(form(), [0, 1, true]);
  const { full } = await stage.sync(rangedPlan([web, keeps]));
  assertEquals([full, ...form()], [true, 1, 0, false]);
  await stage.sync(rangedPlan([web]));
  assertEquals(
    form(),
    [1, 0, false],
    "all rules are not written for each Service that comes and goes",
  );
  await stage.restart();
  await stage.sync(rangedPlan([web]));
  assertEquals(form(), [0, 1, true]);
});

Deno.test("IptablesBackend replaces the marks of Services when the ranges become known", async () => {
  await using stage = await started();
  const services = TWENTY.map((each) => ({ ...each, masqueradeInternal: "off-cluster" as const }));
  await stage.sync(rulesPlan(services));
  const marks = () => stage.machine.rules(/KUBE-MARK-MASQ$/).length;
  assertEquals(marks(), 20);
  await stage.sync(rangedPlan(services));
  assertEquals(marks(), 0);
  const forward = stage.machine.tool.table("filter").get("KUBE-FORWARD") ?? [];
  assertStringIncludes(forward.at(-1) ?? "", "--ctorigdst 172.30.0.0/16", "in place of the mark");
});

Deno.test("IptablesBackend compares everything when the addresses of node ports change", async () => {
  await using stage = await started();
  await stage.sync(PLAN);
  const nodePortRanges = { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] } as const;
  const moved = { ...PLAN, shared: { ...PLAN.shared, nodePortRanges } };
  const { full, operations } = await stage.sync(moved);
  assertEquals([full, operations["reads"]], [true, 1]);
  // Other addresses of the same ranges are in one rule.
  const nodePortAddresses = [parseIpAddress("192.168.0.2")];
  const found = await stage.sync({ ...moved, shared: { ...moved.shared, nodePortAddresses } });
  assertEquals([found.full, found.operations["reads"]], [false, undefined]);
  assertEquals(stage.machine.rules(/-d 192\.168\.0\.2 .*-j KUBE-NODEPORTS/).length, 1);
  const pods = { kind: "byCidr", cidr: parseCidr("10.1.0.0/16") } as const;
  const detected = { ...PLAN, shared: { ...PLAN.shared, localTraffic: pods } };
  assertEquals((await stage.sync(detected)).operations["reads"], 1);
});

Deno.test("IptablesBackend writes nothing after a restart with the same objects", async () => {
  await using stage = await started();
  await stage.sync(PLAN);
  await stage.restart();
  const { restores } = stage.machine;
  const report = await stage.sync(PLAN);
  assertEquals([report.operations, stage.machine.restores.length], [{}, restores.length]);
  const changed = rulesPlan(TWENTY.slice(1));
  assertEquals(await programsOf(stage, () => stage.sync(changed)), ["iptables-restore"]);
});

Deno.test("IptablesBackend repeats a reading that was made long before the first sync", async () => {
  await using stage = await started();
  stage.machine.tool.restore("*nat\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\nCOMMIT\n");
  await stage.wait();
  await stage.sync(PLAN);
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(PLAN));
  assert(!stage.machine.tool.table("nat").has("KUBE-SVC-AAAAAAAAAAAAAAAA"));
});

for (const tellsCommitOnly of [false, true]) {
  const how = tellsCommitOnly ? "tells of the COMMIT only" : "names the line";
  Deno.test(`IptablesBackend quarantines refused rules, by a tool that ${how}`, async () => {
    await using stage = await started();
    await stage.sync(rulesPlan(TWENTY.slice(5)));
    Object.assign(stage.machine, { tellsCommitOnly });
    stage.machine.judge = (line) =>
      / -d 172\.30\.0\.[23] .* DNAT /.test(line) ? "Invalid argument" : undefined;
    const report = await stage.sync(PLAN);
    const bad = [service(2), service(3)].map(({ key }) => key);
    assertEquals(report.quarantined.map(({ key }) => key).sort(), bad);
    if (!tellsCommitOnly) {
      assertStringIncludes(report.quarantined[0]!.reason, "of ns/web-");
      assertStringIncludes(report.quarantined[0]!.reason, "in table nat");
    }
    const others = rulesPlan(TWENTY.filter(({ key }) => !bad.includes(key)));
    assertEquals(meaningOf(stage.machine.tool), goldenMeaning(others));
    const counters = await stage.backend.counting!.ruleCounters();
    assert(counters.failedWrites >= 2);

    const soon = await programsOf(stage, () => stage.sync(PLAN));
    assertEquals(soon, [], "it is not tried again at once");
    assertEquals((await stage.sync(PLAN)).quarantined.length, 2);

    stage.machine.judge = () => undefined;
    await stage.wait();
    assertEquals((await stage.sync(PLAN)).quarantined, []);
    assertEquals(meaningOf(stage.machine.tool), goldenMeaning(PLAN));
  });
}

Deno.test("IptablesBackend retries refused rules at once when settings of all rules change", async () => {
  await using stage = await started();
  const masqueradeInternal = "off-cluster";
  const plan = rulesPlan([testServicePlan({ masqueradeInternal, to: ["10.1.0.1:80"] })]);
  const byBridge = { kind: "byBridge", interfaceName: "bad0" } as const;
  const wrong = { ...plan, shared: { ...plan.shared, localTraffic: byBridge } };
  stage.machine.judge = (line) => line.includes("bad0") ? "Invalid argument" : undefined;
  assertEquals((await stage.sync(wrong)).quarantined.length, 1);
  assertEquals((await stage.sync(plan)).quarantined, []);
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(plan));
});

Deno.test("IptablesBackend names the refused rules if nothing could be written", async () => {
  await using stage = await started();
  stage.machine.judge = (line) => line.includes("MASQUERADE") ? "No such file" : undefined;
  const error = await assertRejects(() => stage.sync(PLAN), SyncFailure);
  assertEquals(error.full, true);
  for (const words of ["line ", "table nat", "MASQUERADE", "No such file"]) {
    assertStringIncludes(error.message, words);
  }
  stage.machine.judge = () => undefined;
  await stage.sync(PLAN);
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(PLAN));
});

for (const extension of ["statistic", "recent", "comment", "addrtype", "random-fully"]) {
  Deno.test(`IptablesBackend serves all other Services on a kernel without '${extension}'`, async () => {
    await using stage = new IptablesStage();
    stage.machine.judge = (line) =>
      new RegExp(`(-m |--)${extension}( |$)`).test(line) ? "No such file or directory" : undefined;
    await stage.backend.start();
    const one = service(1, ["10.1.0.1:8080"]);
    const two = service(2);
    const sticky = { ...service(3, ["10.1.0.3:8080"]), affinityTimeoutSeconds: 60 };
    const local = {
      ...testServicePlan({ name: "local", nodePort: 30_000, to: ["10.1.0.4:80"] }),
      externalTrafficPolicy: "Local" as const,
    };
    const { quarantined } = await stage.sync(rulesPlan([one, two, sticky, local]));
    const expected = { statistic: [two.key], recent: [sticky.key], addrtype: [local.key] };
    assertEquals(
      quarantined.map(({ key }) => key),
      Object.entries(expected).find(([name]) => name === extension)?.[1] ?? [],
    );
    for (const { reason } of quarantined) assertStringIncludes(reason, `'${extension}'`);
    assertEquals(stage.machine.rules(/-d 172\.30\.0\.1 .*DNAT/).length, 1);
    const inspection = await stage.backend.inspect();
    assertEquals(inspection.quarantined, quarantined);
    assertEquals((await stage.backend.inspect([one.key])).quarantined, []);
  });
}

Deno.test("IptablesBackend refuses to start if it cannot forward at all", async () => {
  await using stage = new IptablesStage();
  stage.machine.judge = (line) => line.includes(" DNAT ") ? "No such file" : undefined;
  await assertRejects(() => stage.backend.start(), Error, "target DNAT");
  await using bare = new IptablesStage();
  bare.machine.commands.on("", { code: 127 });
  await assertRejects(() => bare.backend.start(), Error, "Cannot start mode iptables for IPv4");
});

Deno.test("IptablesBackend requests route_localnet only if node ports are served on loopback", () => {
  const stage = new IptablesStage();
  assertEquals(
    stage.backend.hostSettings({ kind: "all" }).map(({ name, value }) => `${name}=${value}`),
    [
      "net.ipv4.conf.all.route_localnet=1",
    ],
  );
  const cidrs = [parseCidr("192.168.0.2/32")];
  assertEquals(stage.backend.hostSettings({ kind: "cidrs", cidrs }), []);
});

Deno.test("IptablesBackend warns once about an unreadable table, and serves", async () => {
  await using stage = new IptablesStage();
  stage.machine.tool.unreadable.add("nat");
  await stage.backend.start();
  await stage.sync(PLAN);
  await stage.sync(rulesPlan(TWENTY.slice(1)));
  assertEquals(meaningOf(stage.machine.tool), goldenMeaning(rulesPlan(TWENTY.slice(1))));
  const warnings = stage.logger.lines.filter(({ level }) => level === "warn");
  assertEquals(warnings.map(({ fields }) => fields["tables"]), [["nat"]]);
});

Deno.test("IptablesBackend reports it when a table that it could read is found to be unreadable", async () => {
  await using stage = new IptablesStage();
  await stage.backend.start();
  await stage.sync(PLAN);
  const { commands, tool } = stage.machine;
  tool.unreadable.add("nat");
  // What the kernel holds is unknown then, and read by the next sync.
  commands.failNext("timeout", { carriedOut: true });
  await assertRejects(() => stage.sync(rulesPlan(TWENTY.slice(1))));
  await stage.sync(rulesPlan(TWENTY.slice(1)));
  const warnings = stage.logger.lines.filter(({ level }) => level === "warn");
  assertEquals(warnings.map(({ fields }) => fields["tables"]), [["nat"]]);
});
