/** Services with very many real servers or frontends, which are written in slices. */
import { assert, assertEquals } from "@std/assert";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";

/** Of the large Service. */
const [ADDRESSES, ENDPOINTS] = [20, 1_000];
/** Operations on virtual servers in one write: 4,096, and 512 for each Service. */
const MOST_OPERATIONS = 4_096 + 2 * 512;

function endpoints(count: number, version = 0): readonly string[] {
  return Array.from({ length: count }, (_, at) => `10.${version}.${at >> 8}.${at & 255}:8080`);
}

/** 20,000 real servers, on so many addresses. */
function large(version = 0): ServicePlan {
  return testServicePlan({
    name: "large",
    clusterIp: "172.20.0.1",
    externalIps: Array.from({ length: ADDRESSES - 1 }, (_, at) => `203.0.113.${at + 1}`),
    to: endpoints(ENDPOINTS, version),
  });
}

/** So many ports of one Service, each with two endpoints. */
function manyPorts(count: number): readonly ServicePlan[] {
  return Array.from({ length: count }, (_, at) =>
    testServicePlan({
      name: "ports",
      portName: `p${at}`,
      clusterIp: "172.20.0.2",
      port: 1_000 + at,
      to: endpoints(2),
    }));
}

const small = (version = 0) =>
  testServicePlan({ name: "small", clusterIp: "172.20.0.9", to: endpoints(2, version) });

/** Syncs a plan until it is written completely, as the loop does, and returns the reports. */
async function finish(stage: IpvsStage, plan: ProxyPlan): Promise<readonly SyncReport[]> {
  const reports: SyncReport[] = [];
  do {
    reports.push(await stage.sync(plan));
    assert(reports.length < 100, "it does not come to an end");
  } while (reports.at(-1)!.isUnfinished);
  return reports;
}

async function dumpOf(plan: ProxyPlan): Promise<string> {
  await using stage = await IpvsStage.started();
  await finish(stage, plan);
  return stage.machine.dump();
}

function operationsOf(reports: readonly SyncReport[]): readonly number[] {
  return reports.map(({ operations }) => operations["ipvsadm"] ?? 0);
}

/** Real servers of weight 1 of each virtual server of the large Service. */
function weighted({ kernel: { table } }: FakeIpvsMachine): readonly (readonly string[])[] {
  return table.getServers().filter(({ key }) => !key.includes("172.20.0.9")).map(({ key }) =>
    table.getReals(key).filter(({ weight }) => weight === 1).map((real) => `${real.key}`)
  );
}

/** The lines for a tool that were written since a call, until one that contains a text. */
function linesBefore(stage: IpvsStage, from: number, text: string): number {
  const lines = stage.machine.commands.calls.slice(from)
    .filter(({ line }) => line === "ipvsadm -R")
    .flatMap(({ stdin }) => stdin.trimEnd().split("\n"));
  return lines.findIndex((line) => line.includes(text));
}

const LARGE = {
  "many real servers": [large()],
  "many ports": manyPorts(6_000),
} as const;

for (const [what, services] of Object.entries(LARGE)) {
  Deno.test(`IpvsBackend: a change is written before the rest of a Service with ${what}`, async () => {
    await using stage = await IpvsStage.started();
    await stage.sync(ipvsPlanOf(small()));
    const from = stage.machine.commands.calls.length;
    const first = await stage.sync(ipvsPlanOf(...services, small()));
    assertEquals(first.isUnfinished, true);
    // It came while the large one was being written.
    const plan = ipvsPlanOf(...services, small(1));
    const reports = [first, ...await finish(stage, plan)];
    const before = linesBefore(stage, from, "10.1.0.1:8080");
    assert(before > 0 && before <= MOST_OPERATIONS, `${before} operations come first`);
    const counts = operationsOf(reports);
    assert(counts.every((count) => count <= MOST_OPERATIONS), String(counts));
    const all = counts.reduce((sum, count) => sum + count, 0);
    assert(all > 3 * MOST_OPERATIONS, `${all} operations would fit without slices`);
    const known = await stage.backend.compare?.(plan);
    assertEquals(known, []);
  });
}

Deno.test("IpvsBackend: a large Service keeps its endpoints until the new ones are there", async () => {
  await using stage = await IpvsStage.started();
  const old = ipvsPlanOf(large());
  await finish(stage, old);
  const changed = ipvsPlanOf(large(1));
  let syncs = 0;
  for (let isUnfinished = true; isUnfinished; syncs++) {
    isUnfinished = (await stage.sync(changed)).isUnfinished === true;
    for (const reals of weighted(stage.machine)) {
      const [before, after] = ["10.0.", "10.1."].map((prefix) =>
        reals.filter((real) => real.startsWith(prefix)).length
      );
      assert(before === ENDPOINTS || after === ENDPOINTS, `${before} old and ${after} new ones`);
    }
  }
  assert(syncs > 5);
  assertEquals(
    weighted(stage.machine).map((reals) => reals.length),
    Array(ADDRESSES).fill(ENDPOINTS),
  );
});

Deno.test("IpvsBackend: a dead endpoint leaves a large Service before the rest is added", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await stage.sync(ipvsPlanOf(small(), large()));
  const [dead = ""] = endpoints(1);
  const copies = () => weighted(stage.machine).filter((reals) => reals.includes(dead)).length;
  assertEquals(copies(), ADDRESSES);
  const { externalIps } = large();
  const plan = ipvsPlanOf(
    small(),
    testServicePlan({
      ...{ name: "large", clusterIp: "172.20.0.1", externalIps },
      to: endpoints(ENDPOINTS).slice(1),
    }),
  );
  assertEquals((await stage.sync(plan)).isUnfinished, true);
  assertEquals(copies(), 0);
  const counts = weighted(stage.machine).map((reals) => reals.length);
  assert(counts.every((count) => count > 0), String(counts));
  await finish(stage, plan);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: an endpoint of a large Service that goes before it was written never is", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await stage.sync(ipvsPlanOf(small(), large()));
  const { calls } = stage.machine.commands;
  const last = `203.0.113.${ADDRESSES - 1}:80 -r ${endpoints(ENDPOINTS).at(-1)}`;
  const linesWithLast = () =>
    calls.flatMap(({ stdin }) => stdin.split("\n")).filter((line) => line.includes(` ${last} `));
  assertEquals(linesWithLast(), []);
  const fewer = testServicePlan({
    name: "large",
    clusterIp: "172.20.0.1",
    externalIps: large().externalIps,
    to: endpoints(ENDPOINTS - 1),
  });
  const plan = ipvsPlanOf(small(), fewer);
  await finish(stage, plan);
  assertEquals(linesWithLast(), []);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: a new large Service has an endpoint at each address from its first write", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await stage.sync(ipvsPlanOf(small(), large()));
  const counts = weighted(stage.machine).map((reals) => reals.length);
  assertEquals(counts.length, ADDRESSES);
  assert(counts.every((count) => count > 0), String(counts));
});

Deno.test("IpvsBackend: a Service with more addresses than a write has room for is finished", async () => {
  const plan = ipvsPlanOf(
    small(),
    testServicePlan({
      name: "wide",
      clusterIp: "172.20.0.1",
      externalIps: Array.from({ length: 5_000 }, (_, at) => `203.0.${at >> 8}.${at & 255}`),
      to: endpoints(2),
    }),
  );
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await finish(stage, plan);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: a restart in the middle of a large Service removes nothing and finishes", async () => {
  const plan = ipvsPlanOf(small(), large());
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  for (const _ of [1, 2]) await stage.sync(plan);
  const before = weighted(stage.machine).flat().length;
  await using next = await IpvsStage.started(stage.machine);
  await next.sync(plan);
  assert(weighted(stage.machine).flat().length > before);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: a failure in the middle of a large Service is overcome", async () => {
  const plan = ipvsPlanOf(small(), large(), ...manyPorts(3_000));
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await stage.sync(plan);
  stage.machine.commands.failNext("timeout");
  await stage.sync(plan).then(() => assert(false, "it failed"), () => {});
  await finish(stage, plan);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: a large Service whose last endpoint is refused is tried again later, not at once", async () => {
  const last = endpoints(ENDPOINTS).at(-1)!;
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  const { machine } = stage;
  machine.refuses = (tool, line) =>
    tool === "ipvsadm" && line.includes(` -r ${last} `) ? "Memory allocation problem" : undefined;
  const plan = ipvsPlanOf(small(), large());
  const reports = await finish(stage, plan);
  assertEquals(reports.at(-1)!.quarantined.map(({ key }) => key), [large().key]);
  assertEquals(weighted(machine), []);
  machine.refuses = () => undefined;
  await stage.clock.advance(1_000);
  const retried = [plan.services.get(large().key)!];
  assertEquals((await stage.sync(plan, { retried })).isUnfinished, true);
  await finish(stage, plan);
  assertEquals(machine.dump(), await dumpOf(plan));
});

Deno.test("IpvsBackend: a port that waits is forgotten with its Service", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(small()));
  await stage.sync(ipvsPlanOf(small(), ...manyPorts(3_000)));
  const plan = ipvsPlanOf(small());
  await finish(stage, plan);
  assertEquals(stage.machine.dump(), await dumpOf(plan));
});
