import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { FakeIpvsMachine, FakePod } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import {
  testEndpoint,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { dsrOf } from "./dsr.ts";

const DSR = { "kube-relay.io/dsr": "tunnel" };
const VIP = "198.51.100.7";
const LOCAL = "10.1.0.1";
const OTHER = "10.2.0.1";
const SERVER = `-t ${VIP}:80`;

/** With these endpoints; those of 10.1.0.0/16 are on this node. */
function service(
  addresses: readonly string[],
  { isReady = true, ...more }: TestServicePlan & { readonly isReady?: boolean } = {},
): ServicePlan {
  const endpoints = addresses.map((address) =>
    testEndpoint(`${address}:80`, { isLocal: address.startsWith("10.1."), ready: isReady })
  );
  const to = isReady ? endpoints.map(({ key }) => key) : [];
  return testServicePlan({ annotations: DSR, externalIps: [VIP], endpoints, to, ...more });
}

/** A machine with the pod of this node. */
function machineWithPod(): { machine: FakeIpvsMachine; pod: FakePod } {
  const machine = new FakeIpvsMachine();
  const pod = new FakePod(LOCAL, 1450);
  machine.pods.set("cni-1", pod).set("cni-2", new FakePod("10.1.0.2"));
  return { machine, pod };
}

/** The real servers of the external IP. */
function reals({ machine: { kernel: { table } } }: IpvsStage): string[] {
  const key = table.getServers().find(({ key }) => key === SERVER)?.key;
  if (key === undefined) return [];
  return table.getReals(key).map(({ key, forwarding, weight }) => `${key} ${forwarding} ${weight}`);
}

/** What is left of direct server return. */
function traces({ pods, settings, iptables, kernel }: FakeIpvsMachine) {
  const text = iptables.tool.dump();
  return {
    tunnels: [...pods.values()].flatMap(({ tunnel }) => tunnel ? [...tunnel] : []),
    arp: [...pods.values()].map((pod) => pod.settings.get("arp_ignore")).join(""),
    accept: settings.get("accept_local"),
    rules: text.includes("TCPMSS") || text.includes("PROBE"),
    set: [...kernel.sets.get("KUBE-DSR") ?? []],
  };
}

const NOTHING = { tunnels: [], arp: "00", accept: "0", rules: false, set: [] };

Deno.test("dsrOf() says why a Service is served without direct server return", () => {
  const node = {
    nodeAddresses: new Set([parseIpAddress("192.0.2.1")]),
    serviceCidrs: [parseCidr("127.96.0.0/16")],
  };
  const cases: readonly (readonly [TestServicePlan, boolean, string?])[] = [
    [{}, true],
    [{ annotations: { "kube-router.io/service.dsr": " Tunnel" } }, true],
    [{ annotations: {} }, false],
    [{ annotations: { "kube-relay.io/dsr": "" } }, false],
    [{ annotations: { "kube-relay.io/dsr": "nat" } }, false, "expected tunnel"],
    [{ externalIps: [] }, false, "node ports have no direct server return"],
    [{ externalIps: [], loadBalancerVips: [VIP] }, true],
    [{ port: 81 }, false, `${LOCAL}:80 has another port than the Service (81)`],
    [{ endpoints: [testEndpoint("192.0.2.1:80")] }, false, "hostNetwork"],
    [{ externalIps: [VIP, "192.0.2.1"] }, false, "192.0.2.1 is an address of the node"],
    [{ loadBalancerVips: ["127.96.0.10"] }, false, "in a range of cluster IPs"],
    [{ nodePort: 30_080, affinityTimeoutSeconds: 60, externalTrafficPolicy: "Local" }, true],
  ];
  for (const [more, isOn, problem] of cases) {
    const found = dsrOf(service([LOCAL], more), node);
    assertEquals(
      [found.isOn, found.problems.length],
      [isOn, problem ? 1 : 0],
      JSON.stringify(more),
    );
    assertStringIncludes(found.problems.join(), problem ?? "");
  }
});

Deno.test("IpvsBackend sets a pod up before it gets packets, and removes all that is left", async () => {
  const { machine, pod } = machineWithPod();
  await using stage = await IpvsStage.started(machine);
  const hasRule = (text: string) => machine.iptables.tool.dump().includes(text);
  await stage.sync(ipvsPlanOf(service([LOCAL], { annotations: {} })));
  assert(!hasRule("KUBE-DSR"));
  await stage.sync(ipvsPlanOf(service([OTHER])));
  assert(hasRule("-p icmp -m icmp --icmp-type 3/2"), "a pod that is not ready yet refuses nobody");
  assert(!hasRule("TCPMSS"));
  await stage.sync(ipvsPlanOf(service([LOCAL, OTHER], { isReady: false })));
  assertEquals([...pod.tunnel ?? []], [VIP], "a pod that is not ready is set up, too");
  assertEquals(reals(stage).filter((each) => !each.endsWith(" 0")), []);
  const seen: boolean[] = [];
  machine.refuses = (tool) => {
    if (tool === "ipvsadm") seen.push(pod.tunnel?.has(VIP) ?? false);
    return undefined;
  };
  await stage.sync(ipvsPlanOf(service([LOCAL, OTHER])));
  assert(seen.length > 0 && seen.every(Boolean));
  assertEquals(reals(stage), [`${LOCAL}:80 -i 1`, `${OTHER}:80 -i 1`]);
  assert(hasRule("-i cni0 -m set ! --match-set KUBE-DSR src -m addrtype --src-type LOCAL"));
  assert(hasRule("--set-mss 1390"));
  assertEquals(traces(machine), {
    ...{ tunnels: [VIP], arp: "10", accept: "1", rules: true, set: [VIP] },
  });
  assertEquals(machine.settings.get("rp_filter"), "2");
  const cluster = machine.kernel.table.getReals("-t 127.96.0.1:80" as never);
  assertEquals(cluster.map(({ forwarding }) => forwarding), ["-m", "-m"]);

  const calls = machine.commands.calls.length;
  await stage.sync(ipvsPlanOf(service([LOCAL, OTHER, "10.2.0.2"])));
  const started = machine.commands.calls.slice(calls).map(({ line }) => line);
  assertEquals(started, ["ipvsadm -R"], "another endpoint costs nothing in pods");

  await stage.sync(ipvsPlanOf(service([LOCAL, OTHER], { annotations: {} })));
  assertEquals(reals(stage).sort(), [`${LOCAL}:80 -m 1`, `${OTHER}:80 -m 1`, "10.2.0.2:80 -i 0"]);
  assertEquals(traces(machine), NOTHING);
});

Deno.test("IpvsBackend leaves a pod out that can't be set up, and tries it again", async () => {
  const { machine, pod } = machineWithPod();
  await using stage = await IpvsStage.started(machine);
  const plan = ipvsPlanOf(service([LOCAL, "10.1.0.9", OTHER]));
  const reasons: readonly (readonly [string, string])[] = [
    ["10.1.0.9", "no namespace in /run/netns has 10.1.0.9"],
    [LOCAL, "Operation not supported"],
  ];
  // The device is there, and half made.
  machine.refuses = (_, line) => line.includes(" alias ") ? "Operation not supported" : undefined;
  const { quarantined } = await stage.sync(plan);
  for (const [address, reason] of reasons) {
    const item = quarantined.find((each) => each.address === address);
    assertStringIncludes(item?.reason ?? "", reason);
  }
  assertEquals(reals(stage), [`${OTHER}:80 -i 1`]);
  const services = [...plan.services.values()];
  const unrelated = service([OTHER], { name: "b", annotations: {}, clusterIp: "127.96.0.2" });
  const calls = machine.commands.calls.length;
  const { quarantined: still } = await stage.sync(
    ipvsPlanOf(...services, { ...unrelated, externalIps: [] }),
    { retried: services },
  );
  assertEquals(still.map(({ address }) => address).sort(), [LOCAL, "10.1.0.9"]);
  // The one that is not there is looked for; the one that fails is not tried, and nothing is read again.
  assertEquals(machine.commands.calls.slice(calls).map(({ line }) => line), [
    ...["ip netns list", "ipset restore", "ipvsadm -R", "ip -batch -"],
  ]);
  machine.refuses = () => undefined;
  machine.pods.set("cni-9", new FakePod("10.1.0.9"));
  await stage.clock.advance(30_000);
  assertEquals((await stage.sync(plan, { retried: services })).quarantined, []);
  assertEquals(reals(stage).length, 3);
  assertEquals([...pod.tunnel ?? []], [VIP]);
});

Deno.test("IpvsBackend reports three of many pods that do not exist", async () => {
  await using stage = await IpvsStage.started(machineWithPod().machine);
  const ghosts = [...Array(9).keys().map((index) => `10.1.9.${index}`)];
  const { quarantined } = await stage.sync(ipvsPlanOf(service([LOCAL, ...ghosts])));
  assertEquals(quarantined.map(({ address }) => address), ghosts.slice(0, 3) as never);
  assertStringIncludes(quarantined[2]?.reason ?? "", "has 10.1.9.2; other pods get none either");
});

Deno.test("IpvsBackend does not miss a pod that is about to end", async () => {
  const { machine } = machineWithPod();
  await using stage = await IpvsStage.started(machine);
  const gone = testEndpoint("10.1.0.9:80", { isLocal: true, terminating: true, ready: false });
  const { endpoints } = service([LOCAL]);
  const plan = ipvsPlanOf(service([LOCAL], { endpoints: [...endpoints, gone] }));
  assertEquals((await stage.sync(plan)).quarantined, []);
  assertEquals(reals(stage), [`${LOCAL}:80 -i 1`]);
  machine.pods.set("cni-9", new FakePod("10.1.0.9"));
  await stage.sync(ipvsPlanOf(service([LOCAL], { endpoints: [gone, ...endpoints] })));
  machine.pods.delete("cni-9");
  const reads = () => machine.commands.calls.filter(({ line }) => line === "ipset save").length;
  const before = reads();
  await stage.pass(31_000);
  assertEquals(reads(), before, "nothing is repaired");
});

Deno.test("IpvsBackend leaves Services alone where the kernel takes no rules for replies", async () => {
  const { machine, pod } = machineWithPod();
  machine.iptables.judge = (line) => line.includes("TCPMSS") ? "No such target" : undefined;
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(ipvsPlanOf(service([LOCAL, OTHER])));
  assertStringIncludes(quarantined[0]?.reason ?? "", "gets no packets by direct server return");
  assertEquals([reals(stage), pod.tunnel], [[`${OTHER}:80 -i 1`], undefined]);
});

Deno.test("IpvsBackend leaves pods out where no setting can be written, and nothing else", async () => {
  const { machine, pod } = machineWithPod();
  machine.refuses = (tool) => tool === "sysctl" ? "Read-only file system" : undefined;
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(ipvsPlanOf(service([LOCAL, OTHER])));
  assertStringIncludes(quarantined[0]?.reason ?? "", "Read-only file system");
  assertEquals(reals(stage), [`${OTHER}:80 -i 1`]);
  await stage.sync(ipvsPlanOf(service([LOCAL, OTHER], { annotations: {} })));
  assertEquals(reals(stage).sort(), [`${LOCAL}:80 -m 1`, `${OTHER}:80 -m 1`]);
  assertEquals([pod.tunnel, traces(machine).rules], [undefined, false]);
});

Deno.test("IpvsBackend leaves pods out where namespaces can't be listed, and nothing else", async () => {
  const { machine } = machineWithPod();
  machine.commands.on("ip netns list", () => ({ code: 1, stderr: "killed" }));
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(ipvsPlanOf(service([LOCAL, OTHER])));
  assertStringIncludes(quarantined[0]?.reason ?? "", "killed");
  assertEquals(reals(stage), [`${OTHER}:80 -i 1`]);
});

Deno.test("IpvsBackend sees and repairs what is missing in pods", async () => {
  const { machine, pod } = machineWithPod();
  const plan = ipvsPlanOf(service([LOCAL]));
  await using stage = await IpvsStage.started(machine);
  await stage.sync(plan);
  assertEquals(await stage.backend.compare?.(plan), []);
  pod.tunnel?.delete(VIP);
  pod.tunnel?.add("198.51.100.99");
  const found = await stage.backend.compare?.(plan) ?? [];
  assertEquals(found.map(({ kind, name }) => `${kind} ${name}`).sort(), [
    `extra 198.51.100.99 in pod ${LOCAL}`,
    `missing ${VIP} in pod ${LOCAL}`,
  ]);
  await stage.backend.repair?.(plan);
  assertEquals([...pod.tunnel ?? []], [VIP]);
  // The pod is started anew with the same address.
  machine.pods.delete("cni-1");
  const next = new FakePod(LOCAL);
  machine.pods.set("cni-3", next);
  await stage.pass(31_000);
  assertEquals([...next.tunnel ?? []], [VIP]);
  assertEquals(reals(stage), [`${LOCAL}:80 -i 1`]);
});

Deno.test("IpvsBackend: a hostile pod harms neither the node nor another pod", async () => {
  const { machine, pod } = machineWithPod();
  // It has the address of the other one, a device in the way, and a small MTU.
  const hostile = new FakePod("10.1.0.3", 68);
  hostile.others = [LOCAL];
  hostile.isStubborn = true;
  machine.pods.set("cni-0", hostile);
  const plan = ipvsPlanOf(service([LOCAL, "10.1.0.3"]));
  await using stage = await IpvsStage.started(machine);
  const { quarantined } = await stage.sync(plan);
  assertEquals(quarantined.map(({ address }) => address), ["10.1.0.3"]);
  assertEquals([...pod.tunnel ?? []], [VIP]);
  assertStringIncludes(machine.iptables.tool.dump(), "--set-mss 1220");
  hostile.isStubborn = false;
  await stage.clock.advance(30_000);
  await stage.sync(plan, { retried: [...plan.services.values()] });
  await stage.backend.repair?.(plan);
  assertEquals(await stage.backend.compare?.(plan), [], "two addresses of a pod are one pod");
  pod.tunnel?.clear();
  assertEquals((await stage.backend.compare?.(plan) ?? []).length, 1);
  await stage.backend.repair?.(plan);
  assertEquals([...pod.tunnel ?? []], [VIP]);
  const alone = ipvsPlanOf(service([LOCAL]));
  await stage.sync(alone);
  hostile.others = [...Array(64).keys().map((index) => `203.0.113.${index}`), LOCAL];
  pod.tunnel?.clear();
  await stage.backend.repair?.(alone);
  assertEquals([...pod.tunnel ?? []], [VIP]);
  assertEquals(hostile.tunnel, undefined, "a pod with very many addresses");
  hostile.tunnel = new Set([VIP]);
  hostile.alias = "kube-relay:dsr,x/../../../kernel/core_pattern=|evil,0,0";
  await using next = await IpvsStage.started(machine);
  const before = machine.commands.calls.length;
  await next.sync(ipvsPlanOf(service([OTHER], { annotations: {} })));
  const lines = machine.commands.calls.slice(before).map(({ line }) => line);
  assertEquals(lines.filter((line) => line.includes("core_pattern")), []);
  assertEquals([pod.tunnel, hostile.tunnel], [undefined, undefined]);
});

Deno.test("IpvsBackend: after kill -9 in the middle of a set-up, the next run completes or removes it", async () => {
  for (const addresses of [[], [VIP]]) {
    for (const annotations of [DSR, {}]) {
      const { machine, pod } = machineWithPod();
      {
        await using stage = await IpvsStage.started(machine);
        await stage.sync(ipvsPlanOf(service([LOCAL])));
      }
      pod.tunnel = new Set(addresses);
      pod.isUp = false;
      await using stage = await IpvsStage.started(machine);
      const plan = ipvsPlanOf(service([LOCAL], { annotations }));
      await stage.sync(plan);
      if (annotations === DSR) assertEquals([[...pod.tunnel ?? []], pod.isUp], [[VIP], true]);
      else assertEquals(traces(machine), NOTHING);
      assertEquals(await stage.backend.compare?.(plan), []);
    }
  }
});

Deno.test("IpvsBackend: after kill -9, the next run and the cleanup find pods", async () => {
  for (const end of ["sync", "cleanup"] as const) {
    const { machine } = machineWithPod();
    {
      await using stage = await IpvsStage.started(machine);
      await stage.sync(ipvsPlanOf(service([LOCAL])));
    }
    await using stage = await IpvsStage.started(machine);
    if (end === "sync") {
      await stage.sync(ipvsPlanOf(service([OTHER], { annotations: {} })));
      assertEquals(traces(machine), NOTHING);
    } else {
      const { failed, removed } = await stage.backend.cleanup();
      assertEquals(failed, []);
      assertStringIncludes(removed.join("\n"), "tunnel kr-dsr4 in namespace cni-1");
      assertEquals(traces(machine), NOTHING);
    }
  }
});
