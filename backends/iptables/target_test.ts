import { assert, assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeIptablesMachine } from "../../tests/support/fakes/fake_iptables_machine.ts";
import { IptablesWriterStage } from "../../tests/support/stages/iptables_writer_stage.ts";
import { IptablesError } from "../netfilter/iptables/iptables_runner.ts";
import { IptablesLayout } from "./layout.ts";
import { renderIptables } from "./render.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });
const PLAN = testServicePlan({ to: ["10.0.0.1:80"] });

/** The number-th ServicePort, with two endpoints. */
function plan(number: number, to?: readonly string[]): ServicePlan {
  const [high, low] = [number >> 8, number & 255];
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.${high}.${low}`,
    masqueradeInternal: "off-cluster",
    to: to ?? [`10.1.${high}.${low}:8080`, `10.2.${high}.${low}:8080`],
  });
}

Deno.test("the rules: the engine has lost counters created again, however often they get lost", async () => {
  let hasCounters = true;
  const stage = new IptablesWriterStage({
    options: { ...OPTIONS, features: { ...OPTIONS.features, nfacct: true } },
    recreateCounters: () => Promise.resolve(hasCounters = true),
  });
  const { engine, machine } = stage;
  machine.judge = (line) => line.includes("--nfacct-name") && !hasCounters ? "lost" : undefined;
  await stage.write();
  const rules = machine.rules(/nfacct/);
  for (let loss = 1; loss <= 2; loss++) {
    machine.tool.restore("*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n");
    hasCounters = false;
    await engine.verify();
    assertEquals([hasCounters, machine.rules(/nfacct/)], [true, rules], `loss ${loss}`);
  }
});

for (const repairBy of ["write", "verify"] as const) {
  Deno.test(`the rules: the engine has counters created again in a ${repairBy} after one that failed`, async () => {
    let hasCounters = true;
    let isFull = false;
    const machine = Object.assign(new FakeIptablesMachine(), { tellsCommitOnly: true });
    const stage = new IptablesWriterStage({
      machine,
      options: { ...OPTIONS, features: { ...OPTIONS.features, nfacct: true } },
      recreateCounters: () => Promise.resolve(hasCounters = true),
    });
    machine.judge = (line) =>
      (line.startsWith("-A ") && isFull) || (line.includes("--nfacct-name") && !hasCounters)
        ? "refused"
        : undefined;
    await stage.write();
    const rules = machine.rules(/nfacct/);
    machine.tool.restore("*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n");
    stage.engine.forget();
    // The kernel has no memory for rules: creating counters does not help.
    isFull = true;
    await assertRejects(() => stage.write(), IptablesError);
    isFull = false;
    hasCounters = false;
    await stage[repairBy]();
    assertEquals([hasCounters, machine.rules(/nfacct/)], [true, rules]);
  });
}

for (const count of [100, 10_000]) {
  Deno.test(`the rules: the engine writes at most 60 lines for one change among ${count}`, async () => {
    const stage = new IptablesWriterStage({ shared: SHARED });
    const { layout, machine } = stage;
    const ascending = count === 100;
    const at = (number: number) => ascending ? number : Math.imul(number, 40_503) & 0xffff;
    for (let number = 1; number <= count; number++) layout.set(plan(at(number)));
    await stage.write();
    const { calls } = machine.commands;
    const before = calls.length;
    for (let number = 1; number <= count; number += count / 20) {
      layout.set(plan(at(number), ["10.3.0.1:80", "10.3.0.2:80"]));
      const { length } = await stage.lines();
      assert(length <= 60, `one endpoint: ${length}`);
    }
    for (let number = count + 1; number <= count + 20; number++) {
      layout.set(plan(at(number)));
      const { length } = await stage.lines();
      assert(length <= 60, `one Service more: ${length}`);
    }
    for (let number = 1; number <= count; number += count / 20) {
      layout.delete(plan(at(number)).key);
      const { length } = await stage.lines();
      assert(length <= 70, `one Service less: ${length}`);
    }
    assertEquals(calls.length, before + 60);
  });
}

Deno.test("renderIptables() keeps chains few and dispatch flat at 10,000 ServicePorts", () => {
  const plans = Array.from({ length: 10_000 }, (_, index) => plan(index + 1));
  const { lines } = renderIptables(testProxyPlan(plans, { shared: SHARED }), OPTIONS);
  const chains = lines.filter((line) => line.startsWith(":"));
  assert(chains.length <= 1_000, `${chains.length} chains`);
  const rules = Map.groupBy(
    lines.filter((line) => line.startsWith("-A ")),
    (line) => line.split(" ", 2)[1],
  );
  const largest = Math.max(...[...rules.values()].map(({ length }) => length));
  assert(largest <= 52, `a chain of ${largest} rules`);
});

Deno.test("renderIptables() gives the same bytes whatever the order of the plan", () => {
  const plans = Array.from({ length: 50 }, (_, number) => plan(number));
  const text = (services: readonly ServicePlan[]) =>
    renderIptables(testProxyPlan(services, { shared: SHARED }), OPTIONS).lines.join("\n");
  assertEquals(text(plans), text(plans.toReversed()));
});

Deno.test("the rules: the engine refuses before nat changes, and stops refusing after", async () => {
  const stage = new IptablesWriterStage({ shared: SHARED });
  stage.layout.set(plan(1));
  await stage.write();
  const tables = async () => (await stage.lines()).filter((line) => line.startsWith("*"));
  stage.layout.set(plan(1, []));
  assertEquals(await tables(), ["*filter", "*nat"]);
  stage.layout.set(plan(1));
  assertEquals(await tables(), ["*nat", "*filter"]);
  stage.layout.set(plan(2, []));
  await stage.write();
  stage.layout.set(plan(1, []));
  stage.layout.set(plan(2));
  const lines = await stage.lines();
  assertEquals(lines.filter((line) => line.startsWith("*")), ["*filter", "*nat", "*filter"]);
  const refused = lines.filter((line) => line.endsWith("-j REJECT"))
    .map((line) => /172\.30\.0\.\d/.exec(line)?.[0]);
  assertEquals(refused, ["172.30.0.1", "172.30.0.2", "172.30.0.1"]);
});

const STALE = "KUBE-SVC-AAAAAAAAAAAAAAAA";
const REFERENCE = `-s 192.0.2.1 -j ${STALE}`;

for (const from of ["OUTPUT", "OTHER-CHAIN"]) {
  for (const tellsCommitOnly of [false, true]) {
    const tool = tellsCommitOnly ? "iptables-legacy" : "iptables-nft";
    Deno.test(`the rules: the engine empties a chain that a rule in ${from} leads to, with ${tool}`, async () => {
      const machine = Object.assign(new FakeIptablesMachine(), { tellsCommitOnly });
      const stage = new IptablesWriterStage({ machine });
      const chains = `:OTHER-CHAIN - [0:0]\n:${STALE} - [0:0]\n-A ${STALE} -j RETURN\n`;
      machine.tool.restore(`*nat\n${chains}-A ${from} ${REFERENCE}\nCOMMIT\n`);
      await stage.write();
      assertEquals(machine.tool.table("nat").get(STALE), []);
      assertEquals(machine.tool.table("nat").get(from)?.at(-1), REFERENCE);
      assertEquals(stage.engine.failures, 0);
      assertEquals(await stage.engine.compare(), [], "there is nothing to be done");
    });
  }
}

Deno.test("the rules: the engine notices a foreign reference that is newer than its reading", async () => {
  const stage = new IptablesWriterStage();
  const { layout, machine: { tool } } = stage;
  const endpoints = [1, 2, 3, 4].map((host) => `10.0.0.${host}:80`);
  layout.set(testServicePlan({ to: endpoints }));
  await stage.write();
  const [chain] = [...tool.table("nat").keys()].filter((name) => name.startsWith("KUBE-SVC-"));
  tool.restore(`*nat\n-A OUTPUT -s 192.0.2.1 -j ${chain}\nCOMMIT\n`);
  layout.set(PLAN);
  await stage.write();
  assertEquals(tool.table("nat").get(chain!), []);
  layout.set(testServicePlan({ to: endpoints }));
  await stage.write();
  assertEquals(tool.table("nat").get(chain!)?.length, 4);
});

Deno.test("the rules: the engine reads again if a jump vanished between its reading and its write", async () => {
  const stage = new IptablesWriterStage();
  stage.layout.set(PLAN);
  await stage.write();
  const { commands, tool } = stage.machine;
  const jump = '-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING';
  tool.restore(`*nat\n-A POSTROUTING ${jump}\nCOMMIT\n`);
  stage.engine.forget();
  stage.layout.set(testServicePlan({ to: ["10.0.0.2:80"] }));
  let reads = 0;
  commands.on("iptables-save", () => {
    const stdout = tool.save();
    if (++reads === 1) tool.restore(`*nat\n-D POSTROUTING ${jump}\nCOMMIT\n`);
    return { stdout };
  });
  await stage.write();
  assertEquals([reads, stage.engine.failures, stage.layout.quarantined], [2, 1, []]);
  assertEquals(await stage.engine.compare(), []);
});

Deno.test("the rules: the engine continues in a table that the tool cannot print", async () => {
  const stage = new IptablesWriterStage();
  const { machine: { tool }, layout, engine, target } = stage;
  layout.set(PLAN);
  await stage.write();
  const whole = tool.dump();
  tool.unreadable.add("filter");
  engine.forget();
  const { restores } = stage.machine;
  await stage.write();
  assertEquals(target.unreadable, ["filter"]);
  assertEquals(tool.dump(), whole, "known to be whole by its canary");
  // Jumps are looked for by a restore of their own.
  const written = stage.machine.restores.slice(restores.length)
    .filter(({ stdin }) => !stdin.includes("\n-C "));
  assertEquals(written, []);
  tool.flush("filter");
  engine.forget();
  await stage.write();
  assertEquals(tool.dump(), whole, "flushed, and written again");
  stage.machine.commands.failNext("timeout", { carriedOut: true });
  layout.set(testServicePlan({ to: ["10.0.0.2:80"] }));
  await assertRejects(() => stage.write(), IptablesError);
  await stage.write();
  assertEquals(tool.dump(), whole.replaceAll("10.0.0.1", "10.0.0.2"), "written again");
  layout.set(testServicePlan({}));
  stage.machine.commands.failNext("timeout", { carriedOut: true });
  await assertRejects(() => stage.write(), IptablesError);
  layout.set(PLAN);
  await stage.write();
  assertEquals(tool.dump(), whole, "what the failed write left is not taken for what it was");
});

Deno.test("the rules: the engine takes over a table that the tool cannot print, with the kubelet's chain in it", async () => {
  const stage = new IptablesWriterStage();
  const { machine: { tool }, layout, target } = stage;
  layout.set(PLAN);
  tool.restore("*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n");
  tool.unreadable.add("filter");
  await stage.write();
  const dump = tool.dump();
  assertEquals(tool.table("filter").get("KUBE-FIREWALL")?.at(-1), "-j DROP");
  assertEquals(tool.table("filter").get("KUBE-FIREWALL")?.length, 2);
  assertEquals(tool.table("filter").get("FORWARD")?.length, 4);
  const next = new IptablesWriterStage(stage);
  next.layout.set(PLAN);
  await next.write();
  assertEquals(tool.dump(), dump, "a second start changes nothing");
  assertEquals(next.target.totals, target.totals);
});

const POSTROUTING = '-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING';
const FOREIGN = '-s 192.0.2.0/24 -m comment --comment "not ours" -j ACCEPT';

/** The jumps that a repair writes to a machine with all rules after a change by another program. */
async function repairs(...lines: readonly string[]): Promise<readonly string[]> {
  const stage = new IptablesWriterStage();
  const { machine: { tool }, engine } = stage;
  tool.restore(renderIptables(testProxyPlan([]), OPTIONS).lines.join("\n"));
  if (lines.length > 0) tool.restore(`${lines.join("\n")}\n`);
  const written = await stage.lines();
  assertEquals(await engine.compare(), []);
  return written.filter((line) => /^-[DI] /.test(line)).map((line) =>
    line.replace(/ .* /, (words) => ` ${words.split(" ")[1]} `)
  );
}

const FIREWALL = "-m conntrack --ctstate NEW -m comment " +
  '--comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL';
const OF_IPVS = '-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL';
const REPAIRS: readonly (readonly [string, lines: readonly string[], writes: readonly string[]])[] =
  [
    ["leaves complete jumps alone", [], []],
    ["leaves jumps alone, whatever stands among them", [
      ...["*filter", `-I INPUT ${FOREIGN}`, `-A INPUT ${FOREIGN}`, "COMMIT"],
    ], []],
    ["inserts the only jump of a chain", ["*nat", `-D POSTROUTING ${POSTROUTING}`, "COMMIT"], [
      "-I POSTROUTING KUBE-POSTROUTING",
    ]],
    ["inserts one jump in place of two", ["*nat", `-A POSTROUTING ${POSTROUTING}`, "COMMIT"], [
      ...["-D POSTROUTING KUBE-POSTROUTING", "-D POSTROUTING KUBE-POSTROUTING"],
      "-I POSTROUTING KUBE-POSTROUTING",
    ]],
    ["puts a chain in order again, in which one is missing", [
      ...["*filter", `-D OUTPUT ${FIREWALL}`, "COMMIT"],
    ], [
      ...["-D OUTPUT KUBE-SERVICES", "-D OUTPUT KUBE-EXTERNAL-SERVICES"],
      ...["-I OUTPUT KUBE-EXTERNAL-SERVICES", "-I OUTPUT KUBE-SERVICES"],
      "-I OUTPUT KUBE-PROXY-FIREWALL",
    ]],
    ["removes leftover jumps of kube-proxy's ipvs mode, and no foreign ones", [
      ...["*filter", `-I INPUT ${OF_IPVS}`, `-I INPUT ${OF_IPVS}`],
      ...["-I INPUT -p tcp -m tcp --dport 9 -j KUBE-PROXY-FIREWALL", "COMMIT"],
    ], ["-D INPUT KUBE-PROXY-FIREWALL", "-D INPUT KUBE-PROXY-FIREWALL"]],
  ];

for (const [what, lines, writes] of REPAIRS) {
  Deno.test(`the rules: the engine ${what}`, async () => {
    assertEquals(await repairs(...lines), writes);
  });
}

Deno.test("the rules: the engine adds one rule of kube-relay to a chain that the kubelet has filled", async () => {
  const drop = "-m mark --mark 0x8000/0x8000 -j DROP";
  const kubelets = ["*filter", ":KUBE-FIREWALL - [0:0]", `-A KUBE-FIREWALL ${drop}`, "COMMIT"];
  assertEquals(await repairs(...kubelets), ["-I KUBE-FIREWALL DROP"]);
  const options = { ...OPTIONS, localhostNodePorts: false };
  const stage = new IptablesWriterStage({ options });
  stage.machine.tool.restore(`${kubelets.join("\n")}\n`);
  await stage.write();
  assertEquals(stage.machine.tool.table("filter").get("KUBE-FIREWALL"), [drop]);
});

/** Gives ServicePorts to a machine whose kernel refuses some. */
class RefusingStage extends IptablesWriterStage {
  constructor(tellsCommitOnly: boolean, isBad: (line: string) => boolean) {
    super({ machine: Object.assign(new FakeIptablesMachine(), { tellsCommitOnly }) });
    this.machine.judge = (line) => isBad(line) ? "Invalid argument" : undefined;
  }

  /** Passes plans to the engine. Returns the ServicePorts in quarantine. */
  async give(plans: readonly ServicePlan[]): Promise<readonly string[]> {
    for (const plan of plans) this.layout.set(plan);
    await this.write();
    return this.layout.quarantined.map(({ key }) => key).sort();
  }

  /** Names of ServicePorts that have rules. */
  get served(): readonly string[] {
    const rules = this.machine.rules(/ -j DNAT /).map((rule) =>
      /"ns\/(\S+) /.exec(rule)?.[1] ?? ""
    );
    return [...new Set(rules)].sort();
  }
}

function web(number: number, end = number): ServicePlan {
  return testServicePlan({
    name: `web-${String(number).padStart(2, "0")}`,
    clusterIp: `172.30.0.${number}`,
    to: [`10.0.0.${end}:80`],
  });
}

const PLANS = Array.from({ length: 40 }, (_, index) => web(index + 1));
const NAMES = PLANS.map(({ name }) => name.name);

/** Rules of endpoints after each command. */
function servedAfterEachCommand({ machine }: IptablesWriterStage): number[] {
  const counts: number[] = [];
  const run = machine.commands.run.bind(machine.commands);
  machine.commands.run = async (...call: Parameters<typeof run>) => {
    const answer = await run(...call);
    counts.push(machine.rules(/ -j DNAT /).length);
    return answer;
  };
  return counts;
}

for (const tellsCommitOnly of [false, true]) {
  const how = tellsCommitOnly ? "looks for" : "is given";

  Deno.test(`the rules: the engine ${how} refused rules while the others stay in force`, async () => {
    const stage = new RefusingStage(
      tellsCommitOnly,
      (line) => line.includes("--to-destination 10.0.0.99:"),
    );
    await stage.give(PLANS);
    const counts = servedAfterEachCommand(stage);
    const changed = PLANS.map((plan, index) => index === 6 ? web(7, 99) : plan);
    assertEquals(await stage.give(changed), [web(7).key as string]);
    // As after a restart, or a change of a setting of all rules.
    const options = { ...OPTIONS, masqueradeAll: true };
    for (
      const layout of [new IptablesLayout(SHARED, options), new IptablesLayout(SHARED, OPTIONS)]
    ) {
      stage.layout = layout;
      stage.engine.forget();
      assertEquals(await stage.give(changed), [web(7).key as string]);
    }
    assertEquals(Math.min(...counts), 39, `${counts}`);
    assertEquals(stage.machine.rules(/TRIAL/), []);
  });

  Deno.test(`the rules: the engine ${how} refused rules, and blames none if the table takes none`, async () => {
    const stage = new RefusingStage(tellsCommitOnly, () => false);
    await stage.give(PLANS);
    stage.machine.judge = (line) => line.startsWith("-A ") ? "Cannot allocate memory" : undefined;
    for (let attempt = 0; attempt < 3; attempt++) {
      const restores = stage.machine.restores.length;
      await assertRejects(() => stage.give([web(7, 99)]), IptablesError);
      assertEquals([stage.served, stage.layout.quarantined], [NAMES, []]);
      assert(stage.machine.restores.length - restores <= 4);
    }
    stage.machine.judge = () => undefined;
    assertEquals(await stage.give([]), []);
    assertEquals(stage.machine.rules(/10\.0\.0\.99:80/).length, 1);
  });

  Deno.test(`the rules: the engine ${how} refused rules for about half a minute, then judges groups`, async () => {
    const stage = new RefusingStage(
      tellsCommitOnly,
      (line) => line.includes(" -d 172.30.0.7 ") && line.includes("DNAT"),
    );
    const run = stage.machine.commands.run.bind(stage.machine.commands);
    stage.machine.commands.run = (...call: Parameters<typeof run>) => {
      stage.clock.stall(9_000);
      return run(...call);
    };
    const quarantined = await stage.give(PLANS);
    assert(quarantined.includes(web(7).key), `${quarantined}`);
    assertEquals(quarantined.length, tellsCommitOnly ? 10 : 1);
    assert(stage.machine.restores.length <= 12, `${stage.machine.restores.length} restores`);
  });

  Deno.test(`the rules: the engine ${how} refused rules only among new ones`, async () => {
    const stage = new RefusingStage(tellsCommitOnly, () => false);
    await stage.give(PLANS);
    // The kernel has them, but would not accept them again.
    stage.machine.judge = (line) => / -d 172\.30\.0\.(?!7 )/.test(line) ? "no" : undefined;
    await assertRejects(() => stage.give([web(7, 99)]), IptablesError);
    assertEquals([stage.served, stage.layout.quarantined], [NAMES, []]);
  });
}

Deno.test("the rules: the engine finds all ServicePorts of a refused rule that is the same for all", async () => {
  const stage = new RefusingStage(true, (line) => line.includes("--to-destination 10.0.0.99:"));
  stage.layout = new IptablesLayout(SHARED, { ...OPTIONS, serviceComments: false });
  const to = Array.from({ length: 20 }, (_, index) => `10.0.0.${80 + index}:80`);
  const alike = Array.from({ length: 20 }, (_, index) =>
    testServicePlan({
      name: `service-${index}`,
      clusterIp: `172.30.1.${index}`,
      nodePort: 30_000 + index,
      to,
    }));
  assertEquals((await stage.give([...alike, web(50)])).length, 20);
  assertEquals(stage.machine.rules(/10\.0\.0\.50:80/).length, 1);
});

Deno.test("the rules: the engine writes all that was to be tried, after a search that broke off", async () => {
  const stage = new RefusingStage(
    true,
    (line) => line.includes(" -d 172.30.0.9 ") && line.includes("DNAT"),
  );
  stage.machine.commands.failCall(5, "timeout");
  await assertRejects(() => stage.give(PLANS), IptablesError);
  assertEquals(await stage.give([]), [web(9).key as string]);
  assertEquals(stage.served, NAMES.filter((name) => name !== "web-09"));
});
