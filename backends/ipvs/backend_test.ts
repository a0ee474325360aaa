import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf as planOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { settle } from "../../tests/support/fakes/fake_clock.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

/** The number-th ServicePort, with two endpoints by default. */
function service(number: number, to = [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`]) {
  return testServicePlan({ name: `web-${number}`, clusterIp: `172.30.0.${number}`, to });
}

const THREE = [service(1), service(2), service(3)];
const PLAN = planOf(...THREE);
const CHANGED = planOf(service(1, ["10.1.0.1:8080"]), service(2), service(4));

/** Returns the state of a new machine with this plan. */
async function golden(plan: ProxyPlan): Promise<string> {
  await using stage = await IpvsStage.started();
  await stage.sync(plan);
  return stage.machine.dump();
}

Deno.test("new IpvsBackend() runs nothing before start(), and cannot sync before", async () => {
  await using stage = new IpvsStage();
  assertEquals(stage.machine.commands.calls, []);
  await assertRejects(() => stage.sync(PLAN), Error, "start() has not succeeded");
});

Deno.test("IpvsBackend reports a device or set that cannot be created, and retries", async () => {
  for (
    const [command, stderr, says] of [
      [
        "ip link add",
        "RTNETLINK answers: Operation not supported",
        "Cannot make device kube-ipvs0",
      ],
      ["ipset restore", "Error in line 1: Kernel error received: set type not supported", "line 1"],
    ] as const
  ) {
    const machine = new FakeIpvsMachine();
    let isBroken = true;
    machine.commands.on(command, (call) => {
      if (isBroken) return { code: 1, stderr };
      if (call.program === "ipset") {
        for (const line of call.stdin.trimEnd().split("\n")) machine.kernel.take("ipset", line);
      } else machine.kernel.hasDevice = true;
      return {};
    });
    await using stage = await IpvsStage.started(machine);
    const error = await assertRejects(() => stage.sync(PLAN), Error);
    assertStringIncludes(error.message, says);
    assertEquals(machine.kernel.table.getServers(), [], "nothing half done");
    isBroken = false;
    await stage.sync(PLAN);
    assertEquals(machine.dump(), await golden(PLAN));
  }
});

Deno.test("IpvsBackend removes a drained endpoint when its connections have ended", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  stage.machine.connections.set("10.2.0.1:8080", 1);
  await stage.sync(CHANGED);
  assertEquals(stage.weight("10.2.0.1:8080"), 0);
  await stage.pass(60_000);
  assertEquals(stage.weight("10.2.0.1:8080"), 0, "it has a connection");
  stage.machine.connections.clear();
  await stage.pass(10_000);
  assertEquals(stage.weight("10.2.0.1:8080"), undefined);
  assertEquals(stage.drift, []);
});

Deno.test("IpvsBackend restores objects that another program removed, and counts them by kind", async () => {
  const harms: readonly (readonly [kind: string, harm: (machine: FakeIpvsMachine) => void])[] = [
    ["virtual_server", ({ kernel }) => kernel.table.clear()],
    ["address", ({ kernel }) => kernel.hasDevice = false],
    ["address", ({ kernel }) => kernel.addresses.clear()],
    ["rule", ({ iptables }) => iptables.tool.restore("*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")],
  ];
  for (const [kind, harm] of harms) {
    await using stage = await IpvsStage.started();
    await stage.sync(PLAN);
    const before = stage.machine.dump();
    harm(stage.machine);
    await stage.pass(31_000);
    assertEquals(stage.machine.dump().split("\n").sort(), before.split("\n").sort());
    assertEquals(stage.drift.map(({ kind }) => kind), [kind]);
  }
});

Deno.test("IpvsBackend.recheck() compares everything at once, sets among it", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  const { sets } = stage.machine.kernel;
  const [name] = [...sets].find(([, entries]) => entries.size > 0) ?? [];
  assert(name);
  const before = stage.machine.dump();
  sets.get(name)?.clear();
  await stage.pass(60_000);
  assertEquals(stage.drift, [], "a look does not read sets");
  stage.backend.recheck();
  await stage.pass(0);
  for (let turn = 0; turn < 200 && stage.drift.length === 0; turn++) await settle();
  assertEquals(stage.drift.map(({ kind }) => kind), ["set"]);
  assertEquals(stage.machine.dump().split("\n").sort(), before.split("\n").sort());
});

Deno.test("IpvsBackend reads again if the kernel left out a virtual server", async () => {
  await using stage = await IpvsStage.started();
  const { connections, kernel } = stage.machine;
  await stage.sync(PLAN);
  const [first] = kernel.table.getServers();
  const [real] = kernel.table.getReals(first!.key);
  const [, kept] = kernel.table.getReals(first!.key);
  connections.set(real!.key, 1);
  // One look, and then a comparison of everything.
  for (const ms of [30_000, 300_000]) {
    stage.machine.tornReadings = 1;
    await stage.pass(ms);
  }
  const warnings = () => stage.logger.lines.filter(({ level }) => level === "warn");
  assertEquals([stage.machine.tornReadings, stage.drift, warnings()], [0, [], []]);
  await stage.sync(planOf(service(1, [kept!.key]), ...THREE.slice(1)));
  assertEquals(stage.weight(real!.key), 0);
  stage.machine.tornReadings = 1;
  await stage.pass(30_000);
  connections.clear();
  await stage.pass(10_000);
  assertEquals(stage.weight(real!.key), undefined, "it is not forgotten that it drains");
});

Deno.test("IpvsBackend does not count as drift what a sync failed to write", async () => {
  await using stage = await IpvsStage.started();
  const { commands, connections } = stage.machine;
  await stage.sync(PLAN);
  connections.set("10.2.0.1:8080", 1);
  await stage.sync(CHANGED);
  await stage.pass(30_000);
  connections.clear();
  // A look that could not take away what has drained compares everything at the next one.
  commands.failCall(commands.calls.length + 2, "timeout");
  await stage.pass(5_000);
  const warnings = () => stage.logger.lines.filter(({ level }) => level === "warn");
  assertEquals(warnings().length, 1);
  commands.failNext("timeout");
  await assertRejects(() => stage.sync(PLAN));
  await stage.pass(60_000);
  assertEquals([stage.drift, warnings().length], [[], 1]);
  await stage.sync(PLAN);
  await stage.pass(60_000);
  assertEquals([stage.drift, warnings().length], [[], 1]);
  assertEquals(stage.machine.dump(), await golden(PLAN));
});

Deno.test("IpvsBackend reports the objects of each ServicePort in the kernel", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(planOf(service(1), service(2, [])));
  stage.machine.connections.set("10.1.0.1:8080", 3);
  const { services } = await stage.backend.inspect();
  const shown = services.map(({ addresses: [address], connections }) => {
    const { role, state, load } = address!;
    return [role, state, connections, load?.active, load?.rates?.connections];
  });
  assertEquals(shown, [["ClusterIP", "serving", 3, 3, 7], ["ClusterIP", "refusing", 0, 0, 7]]);
});

Deno.test("IpvsBackend asks for rates only when it is asked itself, and something goes through", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  const asked = async (action: () => Promise<unknown>) => {
    const { calls } = stage.machine.commands;
    const before = calls.length;
    await action();
    return calls.slice(before).map(({ line }) => line);
  };
  assertEquals(await asked(() => stage.backend.inspect([])), []);
  assertEquals(await asked(() => stage.backend.inspect()), ["cat /proc/net/ip_vs"]);
  stage.machine.connections.set("10.1.0.1:8080", 1);
  assertEquals(await asked(() => stage.backend.inspect()), [
    "cat /proc/net/ip_vs",
    "ipvsadm -L -n --rate --exact",
  ]);
  const syncs = await asked(async () => {
    await stage.sync(CHANGED);
    await stage.pass(400_000);
  });
  assertEquals(syncs.filter((line) => line.includes("--rate")), []);
});

Deno.test("IpvsBackend accepts partial plans on a node without rules for Services only", async () => {
  const machine = new FakeIpvsMachine();
  {
    await using stage = await IpvsStage.started(machine);
    assertEquals(stage.backend.takesPartialPlans, true);
  }
  const stdin = "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n";
  await machine.commands.run("iptables-restore", ["-w", "5", "--noflush"], { stdin });
  await using stage = await IpvsStage.started(machine);
  assertEquals(stage.backend.takesPartialPlans, false, "the first sync would replace them");
});
