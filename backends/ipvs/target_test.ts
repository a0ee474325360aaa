import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";

/** The number-th ServicePort, with two endpoints on other nodes. */
function service(number: number, overrides: Parameters<typeof testServicePlan>[0] = {}) {
  return testServicePlan({
    name: `web-${number}`,
    clusterIp: `172.30.0.${number}`,
    to: [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`],
    ...overrides,
  });
}

/** The input of each program that writes, in the order of the runs. */
async function inputsOf(
  { machine: { commands } }: IpvsStage,
  action: () => Promise<unknown>,
): Promise<readonly (readonly [program: string, lines: readonly string[]])[]> {
  const before = commands.calls.length;
  await action();
  return commands.calls.slice(before).filter(({ stdin }) => stdin !== "")
    .map(({ program, stdin }) => [program, stdin.trimEnd().split("\n")]);
}

/** A machine with the rules and servers of a kube-proxy that served this plan. */
async function machineOfKubeProxy(plan: ServicePlan): Promise<FakeIpvsMachine> {
  const machine = new FakeIpvsMachine();
  await using stage = await IpvsStage.started(machine);
  await stage.sync(ipvsPlanOf(plan));
  // kube-proxy has no such set.
  machine.iptables.tool.restore(
    ["*nat", ":KUBE-SERVICES - [0:0]", "-A KUBE-SERVICES -d 1.2.3.4/32 -j ACCEPT", "COMMIT", ""]
      .join("\n"),
  );
  machine.kernel.sets.delete("KUBE-SERVED");
  return machine;
}

Deno.test("IpvsTarget keeps table nat of another mode until all else is there", async () => {
  const machine = new FakeIpvsMachine();
  machine.iptables.tool.restore(
    ["*nat", ":KUBE-SERVICES - [0:0]", "-A KUBE-SERVICES -d 1.2.3.4/32 -j ACCEPT", "COMMIT", ""]
      .join("\n"),
  );
  await using stage = await IpvsStage.started(machine);
  const inputs = await inputsOf(stage, () => stage.sync(ipvsPlanOf(service(1))));
  const words = inputs.map(([program, lines]) =>
    program === "iptables-restore" ? lines.filter((line) => line.startsWith("*")).join() : program
  );
  assertEquals(words.slice(0, 5), ["ipset", "*mangle,*filter", "ipvsadm", "ip", "*nat"]);
});

Deno.test("IpvsTarget refuses nothing that a kube-proxy before it served", async () => {
  const machine = await machineOfKubeProxy(service(1));
  await using stage = await IpvsStage.started(machine);
  const inputs = await inputsOf(stage, () => stage.sync(ipvsPlanOf(service(1))));
  const served = inputs.findIndex(([program, lines]) =>
    program === "ipset" && lines.some((line) => line.startsWith("add KUBE-SERVED "))
  );
  assert(served >= 0);
  assert(served < inputs.findIndex(([program]) => program === "iptables-restore"));
});

Deno.test("IpvsTarget sends pods to the cluster IP before policy Local drops what comes from outside", async () => {
  await using stage = await IpvsStage.started();
  const external = { externalIps: ["198.51.100.7"] };
  await stage.sync(ipvsPlanOf(service(1, external)));
  const local = service(1, {
    ...external,
    externalTrafficPolicy: "Local",
    external: { kind: "drop" },
    externalFromCluster: service(1).internal,
    internal: service(1).internal,
  });
  const inputs = await inputsOf(stage, () => stage.sync(ipvsPlanOf(local)));
  assertEquals(inputs.map(([program]) => program).slice(0, 2), ["iptables-restore", "ipset"]);
  assert(inputs[1]?.[1].includes("add KUBE-NO-LOCAL-EXTERNAL 198.51.100.7,tcp:80 -exist"));
  const back = await inputsOf(stage, () => stage.sync(ipvsPlanOf(service(1, external))));
  const [program, lines] = back.at(-1) ?? [];
  assertEquals([program, lines?.[1]?.startsWith("-D KUBE-FROM-CLUSTER ")], [
    "iptables-restore",
    true,
  ]);
});

Deno.test("IpvsTarget drains a TCP endpoint, and removes one of UDP or SCTP at once", async () => {
  for (
    const [protocol, line] of [
      ["TCP", "-e -t 172.30.0.1:80 -r 10.2.0.1:8080 -m -w 0"],
      ["UDP", "-d -u 172.30.0.1:80 -r 10.2.0.1:8080"],
      ["SCTP", "-d --sctp-service 172.30.0.1:80 -r 10.2.0.1:8080"],
    ] as const
  ) {
    await using stage = await IpvsStage.started();
    await stage.sync(ipvsPlanOf(service(1, { protocol })));
    const fewer = service(1, { protocol, to: ["10.1.0.1:8080"] });
    const inputs = await inputsOf(stage, () => stage.sync(ipvsPlanOf(fewer)));
    assertEquals(inputs, [["ipvsadm", [line]]], protocol);
  }
});

Deno.test("IpvsTarget gives an endpoint that comes back its weight again", async () => {
  await using stage = await IpvsStage.started();
  stage.machine.connections.set("10.2.0.1:8080", 1);
  await stage.sync(ipvsPlanOf(service(1)));
  await stage.sync(ipvsPlanOf(service(1, { to: ["10.1.0.1:8080"] })));
  const inputs = await inputsOf(stage, () => stage.sync(ipvsPlanOf(service(1))));
  assertEquals(inputs, [["ipvsadm", ["-e -t 172.30.0.1:80 -r 10.2.0.1:8080 -m -w 1"]]]);
});

for (
  const [what, isAlone] of [
    ["whose Service was recreated meanwhile", false],
    ["that another program removed meanwhile", true],
  ] as const
) {
  Deno.test(`IpvsTarget adds a draining endpoint again ${what}`, async () => {
    await using stage = await IpvsStage.started();
    stage.machine.connections.set("10.2.0.1:8080", 1);
    const [both, one] = [service(1), service(1, { to: ["10.1.0.1:8080"] })];
    await stage.sync(ipvsPlanOf(both));
    await stage.sync(ipvsPlanOf(one));
    if (isAlone) stage.machine.kernel.take("ipvsadm", "-d -t 172.30.0.1:80 -r 10.2.0.1:8080");
    else await stage.sync(ipvsPlanOf());
    await stage.sync(ipvsPlanOf(one));
    let quarantined: readonly unknown[] = [];
    const inputs = await inputsOf(stage, async () => {
      ({ quarantined } = await stage.sync(ipvsPlanOf(both)));
    });
    const edit = ["ipvsadm", ["-e -t 172.30.0.1:80 -r 10.2.0.1:8080 -m -w 1"]] as const;
    const addition = ["ipvsadm", ["-a -t 172.30.0.1:80 -r 10.2.0.1:8080 -m -w 1"]] as const;
    assertEquals(inputs, isAlone ? [edit, addition] : [addition]);
    assertEquals(quarantined, []);
  });
}

Deno.test("IpvsTarget lets the time of a draining endpoint go on over a reading", async () => {
  await using stage = await IpvsStage.started();
  stage.machine.connections.set("10.2.0.1:8080", 1);
  await stage.sync(ipvsPlanOf(service(1)));
  const plan = ipvsPlanOf(service(1, { to: ["10.1.0.1:8080"] }));
  await stage.sync(plan);
  await stage.pass(10 * 60_000);
  await stage.backend.compare(plan);
  await stage.pass(5 * 60_000 - 10_000);
  assertEquals(stage.weight("10.2.0.1:8080"), 0);
  await stage.pass(20_000);
  assertEquals(stage.weight("10.2.0.1:8080"), undefined);
});

Deno.test("IpvsTarget edits a server that may have other flags once after a restart, in place", async () => {
  const plan = ipvsPlanOf(
    service(1, { annotations: { "kube-relay.io/ipvs-scheduler": "mh" } }),
    service(2),
  );
  const machine = new FakeIpvsMachine();
  {
    await using stage = await IpvsStage.started(machine);
    await stage.sync(plan);
  }
  await using stage = await IpvsStage.started(machine);
  const inputs = await inputsOf(stage, () => stage.sync(plan));
  assertEquals(inputs, [["ipvsadm", ["-E -t 172.30.0.1:80 -s mh -b mh-port"]]]);
  stage.backend.recheck();
  assertEquals(await inputsOf(stage, () => stage.pass(60_000)), []);
  await using other = new IpvsStage(machine);
  assertEquals(await other.backend.compare?.(plan), [], "another process takes them as wanted");
});

Deno.test("IpvsTarget writes nothing for an address that passes from one Service to another", async () => {
  await using stage = await IpvsStage.started();
  const external = { externalIps: ["198.51.100.7"] };
  const [one, other] = [service(1, external), service(2, { port: 443, ...external })];
  await stage.sync(ipvsPlanOf(one, service(2, { port: 443 })));
  await inputsOf(stage, () => stage.sync(ipvsPlanOf(service(1), other)));
  const { kernel } = stage.machine;
  assertEquals(kernel.addresses.has("198.51.100.7"), true);
  const there = kernel.table.getServers().map(({ key }) => `${key}`).filter((key) =>
    key.includes("198.51.100.7")
  );
  assertEquals(there, ["-t 198.51.100.7:443"]);
  const same = service(2, { port: 80, clusterIp: "172.30.0.1", name: "heir" });
  const writes = await inputsOf(
    stage,
    () => stage.sync(ipvsPlanOf({ ...same, internal: service(1).internal }, other)),
  );
  assertEquals(writes, [], "a frontend that passes with its endpoints is the same object");
});

Deno.test("IpvsTarget knows its rules of Services in the spelling of the tool", async () => {
  await using stage = await IpvsStage.started();
  const { internal } = service(1);
  const plan = ipvsPlanOf(service(1, {
    ...{ externalIps: ["198.51.100.7"], externalTrafficPolicy: "Local" },
    ...{ external: { kind: "drop" }, externalFromCluster: internal, internal },
  }));
  await stage.sync(plan);
  const { commands, iptables: { tool } } = stage.machine;
  const { stdout } = await commands.run("iptables-save", [], { timeoutMs: 10_000 });
  const rules = [...stdout.matchAll(/^-A KUBE-FROM-CLUSTER .*$/gm)].map(([rule]) =>
    rule.replace(/-d (\S+) -m tcp -p tcp/, "-d $1/32 -p tcp -m tcp")
  );
  assertEquals(rules.filter((rule) => rule.includes("198.51.100.7/32 -p tcp")).length, 1);
  tool.restore(["*nat", ":KUBE-FROM-CLUSTER - [0:0]", ...rules, "COMMIT", ""].join("\n"));
  assertEquals(await stage.backend.compare(plan), []);
});

Deno.test("IpvsTarget looks seldom again once a draining endpoint was removed by another program", async () => {
  await using stage = await IpvsStage.started();
  stage.machine.connections.set("10.2.0.1:8080", 1);
  await stage.sync(ipvsPlanOf(service(1)));
  await stage.sync(ipvsPlanOf(service(1, { to: ["10.1.0.1:8080"] })));
  stage.machine.kernel.take("ipvsadm", "-d -t 172.30.0.1:80 -r 10.2.0.1:8080");
  await stage.pass(40_000);
  const { calls } = stage.machine.commands;
  const before = calls.length;
  await stage.pass(60_000);
  const looks = calls.slice(before).filter(({ line }) => line === "cat /proc/net/ip_vs");
  assert(looks.length <= 3, `${looks.length} looks in a minute`);
});

Deno.test("IpvsTarget binds no address that the node has already", async () => {
  await using stage = await IpvsStage.started();
  const node = parseIpAddress("192.168.0.2");
  const plan = service(1, { externalIps: [node], loadBalancerVips: [node] });
  await stage.sync(testProxyPlan([plan], { shared: { interfaceAddresses: [node] } }));
  const { addresses, sets } = stage.machine.kernel;
  assertEquals([[...addresses], [...sets.get("KUBE-IPVS-IPS")!]], [["172.30.0.1"], ["172.30.0.1"]]);
});
