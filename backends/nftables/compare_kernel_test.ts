import { assertEquals } from "@std/assert";
import fc from "fast-check";
import type { FakeNftTable } from "../../tests/support/fakes/fake_nft.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { damagedServices } from "../../tests/support/builders/damaged_services.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  testForward,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import type { Backend } from "../../lib/proxy/backend.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { MachineFacts } from "../../lib/proxy/service_mode.ts";
import { NftablesBackend } from "./backend.ts";
import { pickableEndpoints, SlotAllocator } from "./slots.ts";

/** The first two texts to which something gives the same number. */
function firstTwo(
  textOf: (index: number) => string,
  numberOf: (text: string) => number,
): readonly [string, string] {
  const seen = new Map<number, string>();
  for (let index = 0;; index++) {
    const text = textOf(index);
    const other = seen.get(numberOf(text));
    if (other !== undefined) return [other, text];
    seen.set(numberOf(text), text);
  }
}

function slotOf(name: string, endpoint: string): number {
  const [slot] = new SlotAllocator().slotsOf(testServicePlan({ name, to: [endpoint] })).values();
  return slot!;
}

/** Two of IPv4 with session affinity, two endpoints each, whose numbers would be the same. */
function collidingServices(): readonly [ServicePlan, ServicePlan] {
  const to = firstTwo(
    (index) => `10.1.${index >> 8}.${index & 255}:8080`,
    (endpoint) => slotOf("web", endpoint),
  );
  const names = firstTwo((index) => `web-${index}`, (name) => slotOf(name, to[0]));
  const [left, right] = names.map((name, index) =>
    testServicePlan({
      name,
      to,
      clusterIp: `172.30.0.${index + 1}`,
      nodePort: 30_001 + index,
      affinityTimeoutSeconds: 600,
    })
  );
  return [left!, right!];
}

function backendOn(machine: FakeNftMachine, facts?: MachineFacts): Backend {
  return new NftablesBackend({
    clock: new FakeClock(),
    commands: machine.commands,
    logger: new MemoryLogger(),
    random: () => 0,
  }, {
    family: "IPv4",
    masqueradeBit: 14,
    syncPeriodMs: 30_000,
    ...(facts && { facts }),
  });
}

Deno.test("compare() finds no difference after any history, with and without the order of endpoints", async () => {
  const history = fc.array(fc.array(randomServicePlan, { maxLength: 8 }), {
    minLength: 1,
    maxLength: 5,
  });
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      const machine = new FakeNftMachine();
      await using serving = backendOn(machine);
      await serving.start();
      let previous: ReturnType<typeof testProxyPlan> | undefined;
      for (const plans of steps) {
        const unique = new Map(plans.map((plan) => [plan.key, plan]));
        const plan = testProxyPlan([...unique.values()]);
        await serving.sync(plan, testPlanChanges(plan, previous));
        previous = plan;
        const facts = serving.facts?.();
        for (const known of [facts, { features: facts?.features ?? {} }]) {
          await using other = backendOn(machine, known);
          assertEquals(await other.compare?.(plan), []);
        }
      }
    }),
    { numRuns: 30 },
  );
});

/** All verdicts of a plan for this endpoint. */
function testVerdicts(
  to: string,
): Pick<ServicePlan, "external" | "externalFromCluster" | "internal"> {
  const verdict = testForward(to);
  return { internal: verdict, external: verdict, externalFromCluster: verdict };
}

/** Returns the remembered endpoints of ServicePorts. */
function slotsIn(machine: FakeNftMachine): readonly string[] {
  const { elements } = machine.tool.table("ip kube-relay");
  return ["choices", "node-port-choices"].flatMap((name) =>
    [...elements.get(name) ?? []].map(([key, slot]) => `${name} ${key.replace(/\S+$/, "")}${slot}`)
  ).sort();
}

Deno.test("a restart, and a comparison, know the slots of ServicePorts with colliding hashes", async () => {
  const [left, right] = collidingServices();
  const machine = new FakeNftMachine();
  const serving = backendOn(machine);
  await serving.start();
  // The first one has its hash: the second of the ServicePorts, and its second endpoint.
  const [, last = ""] = [...pickableEndpoints(right)];
  const first = testProxyPlan([{ ...right, ...testVerdicts(last) }]);
  await serving.sync(first, testPlanChanges(first));
  const plan = testProxyPlan([left, right]);
  await serving.sync(plan, testPlanChanges(plan, first));
  const slots = slotsIn(machine);
  assertEquals(new Set(slots).size, slots.length);
  for (const facts of [serving.facts?.(), { features: {} }]) {
    await using other = backendOn(machine, facts);
    assertEquals(await other.compare?.(plan), []);
  }
  await serving[Symbol.asyncDispose]();
  await using restarted = backendOn(machine);
  await restarted.start();
  const { quarantined } = await restarted.sync(plan, testPlanChanges(plan));
  assertEquals([slotsIn(machine), quarantined], [slots, []]);
  // Known slots are not read again, even if another program writes other ones.
  const [key = "", slot = ""] = [...choicesOf(machine)][0] ?? [];
  choicesOf(machine).set(key, slot.replace(/.$/, (digit) => digit === "0" ? "1" : "0"));
  await restarted.repair?.(plan);
  assertEquals(slotsIn(machine), slots);
});

function choicesOf(machine: FakeNftMachine): Map<string, string> {
  return machine.tool.table("ip kube-relay").elements.get("choices") ?? new Map();
}

Deno.test("compare() of some ServicePorts reports their objects and the shared ones", async () => {
  const machine = new FakeNftMachine();
  await using serving = backendOn(machine);
  await serving.start();
  const plan = testProxyPlan(damagedServices());
  await serving.sync(plan, testPlanChanges(plan));
  const table = machine.tool.table("ip kube-relay");
  table.elements.get("endpoints")?.delete("172.30.0.1 . tcp . 80 . 0x80000000");
  table.elements.get("endpoints")?.delete("172.30.0.3 . tcp . 80 . 0x80000000");
  table.chains.set("services", []);
  await using other = backendOn(machine, serving.facts?.());
  const [web] = damagedServices();
  const found = await other.compare?.(plan, { keys: new Set([web!.key]) }) ?? [];
  assertEquals(found.map(({ object, key }) => `${object} ${key ?? ""}`), [
    "rule ",
    "rule ",
    `map element ${web!.key}`,
  ]);
});

Deno.test("compare() that ignores extra objects sees a table of another form, and foreign rules", async () => {
  const damages = [
    (table: FakeNftTable) => void table.declarations.set("hairpin", ["type ether_addr"]),
    (table: FakeNftTable) => void table.chains.get("services")!.unshift("meta l4proto tcp drop"),
  ];
  for (const damage of damages) {
    const machine = new FakeNftMachine();
    await using serving = backendOn(machine);
    await serving.start();
    const plan = testProxyPlan(damagedServices());
    await serving.sync(plan, testPlanChanges(plan));
    damage(machine.tool.table("ip kube-relay"));
    const keys = new Set([damagedServices()[0]!.key]);
    const found = await serving.compare?.(plan, { keys, ignoresExtra: true });
    assertEquals(found?.length, 1);
  }
});

Deno.test("compare() reports a shared element that is missing for each ServicePort that is asked for", async () => {
  const machine = new FakeNftMachine();
  await using serving = backendOn(machine);
  await serving.start();
  const services = ["a", "b"].map((name, index) =>
    testServicePlan({ name, clusterIp: "172.30.0.1", port: 80 + index, to: ["10.1.0.1:8080"] })
  );
  const plan = testProxyPlan(services);
  await serving.sync(plan, testPlanChanges(plan));
  machine.tool.table("ip kube-relay").elements.get("cluster-ips")!.clear();
  for (const { key } of services) {
    const found = await serving.compare?.(plan, { keys: new Set([key]), ignoresExtra: true });
    assertEquals(found?.map((each) => each.key), [key]);
  }
});

Deno.test("compare() of some ServicePorts reads once if only others differ", async () => {
  const machine = new FakeNftMachine();
  await using serving = backendOn(machine);
  await serving.start();
  const plan = testProxyPlan(damagedServices());
  await serving.sync(plan, testPlanChanges(plan));
  const [web] = damagedServices();
  const commandsOf = async (keys?: ReadonlySet<ServicePortKey>) => {
    const before = machine.commands.calls.length;
    const { length } = await serving.compare(plan, { keys });
    return [length, machine.commands.calls.length - before];
  };
  const [, once = 0] = await commandsOf();
  const { elements } = machine.tool.table("ip kube-relay");
  elements.get("endpoints")?.delete("172.30.0.3 . tcp . 80 . 0x80000000");
  assertEquals(await commandsOf(new Set([web!.key])), [0, once]);
  assertEquals(await commandsOf(), [1, once + 1]);
});

Deno.test("compare() gives the serving process the same result as any other process", async () => {
  const damaged = fc.record({
    plans: fc.array(randomServicePlan, { maxLength: 8 }),
    every: fc.nat(5),
  });
  await fc.assert(
    fc.asyncProperty(damaged, async ({ plans, every }) => {
      const machine = new FakeNftMachine();
      await using serving = backendOn(machine);
      await serving.start();
      const plan = testProxyPlan([...new Map(plans.map((each) => [each.key, each])).values()]);
      await serving.sync(plan, testPlanChanges(plan));
      const { elements, chains } = machine.tool.table("ip kube-relay");
      const keys = [...elements].flatMap(([name, values]) =>
        [...values.keys()].map((key) => [name, key])
      );
      for (const [index, [name = "", key = ""]] of keys.entries()) {
        if (every > 0 && index % every === 0) elements.get(name)?.delete(key);
      }
      if (every % 2 === 1) chains.set("services", ["meta l4proto tcp drop"]);
      await using other = backendOn(machine, serving.facts?.());
      assertEquals(await serving.compare?.(plan), await other.compare?.(plan));
      for (const key of plan.services.keys()) {
        const scope = { keys: new Set([key]) };
        const found = await serving.compare?.(plan, { ...scope, ignoresExtra: true });
        assertEquals(found, await other.compare?.(plan, scope));
      }
    }),
    { numRuns: 30 },
  );
});
