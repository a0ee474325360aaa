import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { IPVS_SETTINGS, ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { IpvsBackendOptions } from "./backend.ts";

const WEB = testServicePlan({
  name: "web",
  clusterIp: "172.30.0.1",
  externalIps: ["198.51.100.7"],
  to: ["10.1.0.1:8080"],
});
const OTHER = testServicePlan({ name: "other", clusterIp: "172.30.0.2", to: ["10.1.0.2:8080"] });

/** A machine on which another program made a virtual server at the address of Service `web`. */
function machineOfOthers(): FakeIpvsMachine {
  const machine = new FakeIpvsMachine();
  makeTheirs(machine);
  return machine;
}

function makeTheirs({ kernel }: FakeIpvsMachine): void {
  kernel.take("ipvsadm", "-A -t 198.51.100.7:80 -s wlc");
  kernel.take("ipvsadm", "-a -t 198.51.100.7:80 -r 203.0.113.9:80 -m -w 1");
}

function warningsOf({ logger }: IpvsStage): string[] {
  return logger.lines.filter(({ level }) => level === "warn")
    .map(({ message, fields }) => `${message} ${JSON.stringify(fields)}`);
}

async function summaryOf({ backend }: IpvsStage): Promise<string> {
  return (await backend.inspect([])).summary;
}

/** Asserts that it is reported once. */
async function assertReported(stage: IpvsStage): Promise<void> {
  const [warning = "", ...more] = warningsOf(stage);
  for (const part of ["198.51.100.7:80/TCP", "web", "another address or port"]) {
    assertStringIncludes(warning, part);
  }
  assertEquals(more, []);
  assertStringIncludes(
    await summaryOf(stage),
    "foreign virtual servers were changed at 198.51.100.7:80/TCP",
  );
  assertEquals(stage.weight("10.1.0.1:8080"), 1, "the Service is served");
}

Deno.test("IpvsBackend reports a foreign virtual server at the address of a Service", async () => {
  await using stage = await IpvsStage.started(machineOfOthers());
  await stage.sync(ipvsPlanOf(WEB, OTHER));
  await assertReported(stage);
  await stage.sync(ipvsPlanOf(OTHER));
  assert(!(await summaryOf(stage)).includes("198.51.100.7"), "the Service has gone");
});

Deno.test("IpvsBackend reports a new Service at the address of a foreign virtual server", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(ipvsPlanOf(OTHER));
  makeTheirs(stage.machine);
  await stage.sync(ipvsPlanOf(WEB, OTHER));
  await assertReported(stage);
});

Deno.test("IpvsBackend warns once of a foreign virtual server that is recreated again and again", async () => {
  await using stage = await IpvsStage.started();
  for (let time = 0; time < 3; time++) {
    await stage.sync(ipvsPlanOf(OTHER));
    makeTheirs(stage.machine);
    await stage.sync(ipvsPlanOf(WEB, OTHER));
  }
  await assertReported(stage);
});

Deno.test("IpvsBackend reports a whole table of foreign virtual servers in a few lines", async () => {
  const services = Array.from({ length: 300 }, (_, number) =>
    testServicePlan({
      name: `web-${number}`,
      clusterIp: `172.30.${number >> 8}.${number & 255}`,
      to: ["10.1.0.1:8080"],
    }));
  const machine = new FakeIpvsMachine();
  for (const { clusterIp } of services) {
    machine.kernel.take("ipvsadm", `-A -t ${clusterIp}:80 -s wlc`);
  }
  await using stage = await IpvsStage.started(machine);
  await stage.sync(ipvsPlanOf(...services));
  assertEquals(warningsOf(stage).length, 20);
  assertStringIncludes(warningsOf(stage).at(-1) ?? "", "further conflicts are not logged");
  assertStringIncludes(await summaryOf(stage), "and 17 or more others");
});

/** Cases without a report. */
const INNOCENT: readonly (readonly [
  string,
  (machine: FakeIpvsMachine) => void,
  Partial<IpvsBackendOptions>?,
])[] = [
  ["its own, after a restart", () => {}],
  ["its own, changed by another program meanwhile", ({ kernel }) => {
    kernel.take("ipvsadm", "-E -t 198.51.100.7:80 -s wlc");
    kernel.take("ipvsadm", "-a -t 198.51.100.7:80 -r 203.0.113.9:80 -m -w 1");
  }],
  ["its own, excluded since", () => {}, {
    ipvs: { ...IPVS_SETTINGS.ipvs, excludeCIDRs: ["198.51.100.0/24"] },
  }],
  ["its own, without sets and addresses", ({ kernel }) => {
    kernel.sets.clear();
    kernel.hasDevice = false;
  }],
];

for (const [what, change, options] of INNOCENT) {
  Deno.test(`IpvsBackend reports nothing about a virtual server that is ${what}`, async () => {
    const machine = new FakeIpvsMachine();
    {
      await using stage = await IpvsStage.started(machine);
      await stage.sync(ipvsPlanOf(WEB, OTHER));
    }
    change(machine);
    await using stage = new IpvsStage(machine, options);
    await stage.backend.start();
    await stage.sync(ipvsPlanOf(WEB, OTHER));
    assertEquals(warningsOf(stage), []);
  });
}
