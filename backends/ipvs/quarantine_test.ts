import { assert, assertEquals, assertNotEquals, assertStringIncludes } from "@std/assert";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

function service(number: number, overrides: Parameters<typeof testServicePlan>[0] = {}) {
  return testServicePlan({
    name: `web-${number}`,
    clusterIp: `172.30.0.${number}`,
    to: [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`],
    ...overrides,
  });
}

const GOOD = [1, 2, 4, 5].map((number) => service(number));
const BAD = service(3);
const ALL = ipvsPlanOf(GOOD[0]!, GOOD[1]!, BAD, GOOD[2]!, GOOD[3]!);

async function golden(plan = ipvsPlanOf(...GOOD)): Promise<string> {
  await using stage = await IpvsStage.started();
  await stage.sync(plan);
  return stage.machine.dump();
}

/** Lines that each tool may refuse, with its message. */
const REFUSALS = [
  [
    "ipset",
    "add KUBE-CLUSTER-IP 172.30.0.3,tcp:80 -exist",
    "Hash is full, cannot add more elements",
  ],
  ["ipset", "add KUBE-IPVS-IPS 172.30.0.3 -exist", "Hash is full, cannot add more elements"],
  ["ipvsadm", "-A -t 172.30.0.3:80 -s rr", "Memory allocation problem"],
  ["ipvsadm", "-a -t 172.30.0.3:80 -r 10.2.0.3:8080 -m -w 1", "Memory allocation problem"],
  [
    "ip",
    "addr replace 172.30.0.3/32 dev kube-ipvs0",
    "RTNETLINK answers: No buffer space available",
  ],
] as const;

for (const [tool, line, reason] of REFUSALS) {
  Deno.test(`IpvsBackend puts the ServicePort of '${line}' into quarantine, and it alone`, async () => {
    const machine = new FakeIpvsMachine();
    machine.refuses = (which, each) => which === tool && each === line ? reason : undefined;
    await using stage = await IpvsStage.started(machine);
    const { quarantined } = await stage.sync(ALL);
    assertEquals(quarantined.map(({ key }) => key), [BAD.key]);
    assertStringIncludes(quarantined[0]!.reason, reason);
    assertEquals(machine.dump(), await golden());
    await using other = new IpvsStage(machine);
    assertNotEquals(await other.backend.compare?.(ALL), []);
    assertEquals(await other.backend.compare?.(ALL, { quarantined }), []);

    assertEquals(await stage.writesOf(() => stage.sync(ALL, { retried: [BAD] })), [], "too early");
    machine.refuses = () => undefined;
    await stage.clock.advance(1_000);
    assertEquals((await stage.sync(ALL, { retried: [BAD] })).quarantined, []);
    assertEquals(machine.dump(), await golden(ALL));
  });
}

Deno.test("IpvsBackend finds the line at which ipvsadm gave up", async () => {
  const machine = new FakeIpvsMachine();
  let hasGivenUp = false;
  machine.commands.on("ipvsadm -R", ({ stdin }) => {
    hasGivenUp = false;
    for (const line of stdin.trimEnd().split("\n")) {
      hasGivenUp ||= line.includes(" 172.30.0.3:80");
      if (!hasGivenUp) machine.kernel.take("ipvsadm", line);
    }
    return hasGivenUp
      ? { code: 2, stderr: "illegal virtual server address[:port] specified\n" }
      : {};
  });
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(ALL);
  assertEquals(quarantined.map(({ key }) => key), [BAD.key]);
  assertEquals(machine.dump(), await golden());
});

Deno.test("IpvsBackend puts the ServicePort of a rule that iptables refuses into quarantine", async () => {
  const machine = new FakeIpvsMachine();
  machine.iptables.judge = (line) =>
    line.startsWith("-A KUBE-FROM-CLUSTER -d 192.0.2.3") ? "Invalid argument" : undefined;
  const local = {
    externalIps: ["192.0.2.3"],
    externalTrafficPolicy: "Local",
    externalFromCluster: BAD.internal,
  } as const;
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(ipvsPlanOf(...GOOD, service(3, local)));
  assertEquals(quarantined.map(({ key }) => key), [BAD.key]);
  assertStringIncludes(quarantined[0]!.reason, "Invalid argument");
  assertEquals(machine.dump(), await golden());
  assertEquals((await stage.backend.counting!.ruleCounters())?.failedWrites, 1);
});

for (const isFirst of [false, true]) {
  Deno.test(`IpvsBackend quarantines only a new rule if iptables names none: ${!isFirst}`, async () => {
    const machine = new FakeIpvsMachine();
    machine.iptables.tellsCommitOnly = true;
    machine.iptables.judge = (line) => line.includes("-d 192.0.2.3") ? "Invalid" : undefined;
    const local = (number: number) =>
      service(number, {
        externalIps: [`192.0.2.${number}`],
        externalTrafficPolicy: "Local",
        externalFromCluster: service(number).internal,
      });
    const good = [local(1), ...GOOD.slice(1)];
    await using stage = await IpvsStage.started(machine);
    if (!isFirst) await stage.sync(ipvsPlanOf(...good));
    const all = ipvsPlanOf(...good, local(3));
    if (isFirst) {
      const error = await stage.sync(all).then(() => undefined, (each) => each);
      assert(error instanceof Error, "no ServicePort is left out for an object of unknown owner");
      return;
    }
    const { quarantined } = await stage.sync(all);
    assertEquals(quarantined.map(({ key }) => key), [BAD.key]);
    assertEquals(machine.dump(), await golden(ipvsPlanOf(...good)));
  });
}

Deno.test("IpvsBackend blames every ServicePort of which the kernel refuses something", async () => {
  const machine = new FakeIpvsMachine();
  machine.refuses = (_, line) => / --sctp-service /.test(line) ? "No such service" : undefined;
  await using stage = await IpvsStage.started(machine);
  const many = Array.from({ length: 50 }, (_, index) => service(100 + index, { protocol: "SCTP" }));
  const { quarantined } = await stage.sync(ipvsPlanOf(...GOOD, ...many));
  assertEquals(quarantined.length, 50);
  assertEquals(machine.dump(), await golden());
});

Deno.test("IpvsBackend serves by the node's scheduler if a Service's own cannot be had", async () => {
  const machine = new FakeIpvsMachine();
  machine.refuses = (_, line) =>
    line.includes("-s lblcr") ? "Scheduler or persistence engine not found" : undefined;
  const annotations = { "kube-relay.io/ipvs-scheduler": "lblcr" };
  await using stage = await IpvsStage.started(machine);
  const plan = ipvsPlanOf(...GOOD, service(3, { annotations }));
  const { quarantined } = await stage.sync(plan);
  assertEquals(quarantined.map(({ key }) => key), [BAD.key]);
  assertEquals(machine.dump(), await golden(ALL));
  await using other = new IpvsStage(machine);
  assertNotEquals(await other.backend.compare?.(plan), []);
  assertEquals(await other.backend.compare?.(plan, { quarantined }), []);
});

Deno.test("IpvsBackend quarantines nothing if a tool may not be used at all", async () => {
  for (
    const reason of ["Operation not permitted", "Can't initialize ipvs: Protocol not available"]
  ) {
    const machine = new FakeIpvsMachine();
    machine.refuses = (tool) => tool === "ipvsadm" ? reason : undefined;
    await using stage = await IpvsStage.started(machine);
    const error = await stage.sync(ALL).then(() => undefined, (each) => each);
    assert(error instanceof Error && error.message.includes(reason), String(error));
    machine.refuses = () => undefined;
    assertEquals((await stage.sync(ALL)).quarantined, []);
    assertEquals(machine.dump(), await golden(ALL));
  }
});

/** A port of Service `wide` with this number of addresses and endpoints. */
function widePort(portName: string, addresses: number, endpoints: number) {
  return testServicePlan({
    name: "wide",
    portName,
    port: portName.length,
    clusterIp: "172.30.9.1",
    externalIps: Array.from({ length: addresses - 1 }, (_, at) => `198.51.${at >> 8}.${at & 255}`),
    to: Array.from({ length: endpoints }, (_, at) => `10.9.${at >> 8}.${at & 255}:80`),
  });
}

Deno.test("IpvsBackend leaves out ports of a Service with more than 200,000 real servers", async () => {
  await using stage = await IpvsStage.started();
  const small = widePort("a", 1, 2);
  const wide = widePort("bb", 200, 1_000);
  const { quarantined } = await stage.sync(ipvsPlanOf(...GOOD, small, wide));
  assertEquals(quarantined.map(({ key }) => key), [wide.key]);
  assertStringIncludes(quarantined[0]!.reason, "more than 200000 real servers");
  assertEquals(stage.machine.dump(), await golden(ipvsPlanOf(...GOOD, small)));

  const other = widePort("bb", 3, 2);
  assertEquals((await stage.sync(ipvsPlanOf(...GOOD, small, other))).quarantined, []);
  assertEquals(stage.machine.dump(), await golden(ipvsPlanOf(...GOOD, small, other)));
});
