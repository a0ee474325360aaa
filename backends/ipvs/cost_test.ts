import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

/** The number-th of some tens of thousands; `version` is another endpoint. */
function service(number: number, version = 0): ServicePlan {
  const host = `${number >> 8}.${number & 255}`;
  return testServicePlan({
    name: `web-${number}`,
    clusterIp: `172.20.${host}`,
    to: [`10.${version}.${host}:8080`, `10.100.${host}:8080`],
  });
}

/**
 * Returns the writes of an action: the number of lines for each program, in the order of the runs.
 */
async function writesOf(stage: IpvsStage, action: () => Promise<unknown>): Promise<string[]> {
  const { calls } = stage.machine.commands;
  const before = calls.length;
  await action();
  return calls.slice(before).filter(({ stdin }) => stdin !== "")
    .map(({ program, stdin }) => `${program} ${stdin.trimEnd().split("\n").length}`);
}

Deno.test("IpvsBackend: a sync does not list the interfaces of the machine", async () => {
  const machine = new FakeIpvsMachine();
  await using stage = await IpvsStage.started(machine);
  const plan = ipvsPlanOf(service(1));
  Object.defineProperty(machine, "interfaceAddresses", {
    get: () => {
      throw new Error("Too many open files (os error 24)");
    },
  });
  const { operations } = await stage.sync(plan);
  assert(Object.keys(operations).length > 0);
  assert([...stage.backend.render(plan)].length > 0);
  assertEquals(Object.keys(stage.backend.facts() ?? {}), ["features"]);
});

/** One change of each kind among this number of Services. */
async function changesAmong(count: number): Promise<Record<string, readonly string[]>> {
  const services = Array.from({ length: count }, (_, number) => service(number));
  await using stage = await IpvsStage.started();
  const load = await writesOf(stage, () => stage.sync(ipvsPlanOf(...services)));
  assertEquals(load.map((each) => each.split(" ")[0]), [
    "ipset",
    "iptables-restore",
    "ipvsadm",
    "ip",
  ]);
  const changed = [service(0, 1), ...services.slice(1)];
  const endpoints = await writesOf(stage, () => stage.sync(ipvsPlanOf(...changed)));
  const more = await writesOf(stage, () => stage.sync(ipvsPlanOf(...changed, service(60_000))));
  const less = await writesOf(stage, () => stage.sync(ipvsPlanOf(...changed)));
  return { endpoints, more, less };
}

Deno.test("IpvsBackend: a change among 10,000 Services is as many lines as among 100", async () => {
  const few = await changesAmong(100);
  assertEquals(few, {
    endpoints: ["ipvsadm 2"],
    more: ["ipset 3", "ipvsadm 3", "ip 1"],
    less: ["ipset 1", "ipvsadm 1", "ip 1", "ipset 2"],
  });
  assertEquals(await changesAmong(10_000), few);
});

Deno.test("IpvsBackend: a change that all Services share and none reads walks over none", async () => {
  const services = Array.from({ length: 100 }, (_, number) => service(number));
  await using stage = await IpvsStage.started();
  const plan = ipvsPlanOf(...services);
  await stage.sync(plan);
  const walked = Object.assign(new Map(ipvsPlanOf(service(0, 1), ...services.slice(1)).services), {
    keys: () => {
      throw new Error("Walked over all Services");
    },
  });
  const node = { name: "other", zone: "b" };
  const shared = { ...plan.shared, node };
  const upserted = new Set([service(0).key]);
  const writes = await writesOf(
    stage,
    () =>
      stage.backend.sync({ ...plan, services: walked, shared }, {
        ...{ upserted, removed: new Map(), shared: true, everything: false },
      }),
  );
  assertEquals(writes, ["ipvsadm 2"]);
});

Deno.test("IpvsBackend: a change of what masquerades, or of a node port address, reaches the kernel", async () => {
  const masqueraded = { nodePort: 30080 as Port, masqueradeInternal: "off-cluster" } as const;
  const port: ServicePlan = { ...service(1), ...masqueraded };
  await using stage = await IpvsStage.started();
  const plan = ipvsPlanOf(port);
  await stage.sync(plan);
  const nodePortAddresses = [parseIpAddress("192.168.0.2")];
  const more = { ...plan, shared: { ...plan.shared, nodePortAddresses } };
  assertEquals(await writesOf(stage, () => stage.sync(more)), ["ipset 2", "ipvsadm 3"]);
  const localTraffic = { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } as const;
  const detects = { ...more, shared: { ...more.shared, localTraffic } };
  assertEquals(await writesOf(stage, () => stage.sync(detects)), ["iptables-restore 26"]);
});

Deno.test("IpvsBackend: a quiet hour runs the checks and writes nothing", async () => {
  await using stage = await IpvsStage.started(new FakeIpvsMachine());
  await stage.sync(ipvsPlanOf(service(1), service(2)));
  const { calls } = stage.machine.commands;
  const before = calls.length;
  await stage.pass(3_600_000);
  const lines = calls.slice(before).map(({ line }) => line);
  const counts = Map.groupBy(lines, (line) => line);
  const count = (line: string) => counts.get(line)?.length ?? 0;
  // A look each 30 s, a comparison of everything each 5 minutes.
  const [looks, comparisons] = [120, 12];
  assert(count("iptables -w 5 -t nat -S KUBE-SERVICES") <= looks);
  assert(count("ipset save") <= comparisons && count("ipset save") >= comparisons - 1);
  assert(count("iptables-save") <= comparisons);
  assert(count("cat /proc/net/ip_vs") <= looks + comparisons);
  assertEquals(
    [...counts.keys()].sort(),
    [
      "cat /proc/net/ip_vs",
      "ip -j addr show dev kube-ipvs0",
      "ipset save",
      "iptables -w 5 -t nat -S KUBE-SERVICES",
      "iptables-save",
    ],
  );
});
