import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { IPVS_SETTINGS, IpvsRuns, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { IpvsBackendOptions } from "./backend.ts";

const WEB = { name: "web", clusterIp: "172.30.0.1" };
const [KEPT, LOST] = ["192.0.2.1", "192.0.2.2"].map((each) => parseIpAddress(each));
const PORT_SERVICE = testServicePlan({ ...WEB, nodePort: 30_080, to: ["10.1.0.1:8080"] });

function nodePortPlan(...nodePortAddresses: readonly (typeof KEPT)[]): ProxyPlan {
  return testProxyPlan([PORT_SERVICE], {
    shared: { nodePortAddresses: nodePortAddresses.map((each) => each!) },
  });
}

/** The node loses one of its two addresses while nothing runs. */
async function runsWithLostAddress(): Promise<IpvsRuns> {
  const runs = new IpvsRuns();
  const at = (addresses: readonly (typeof KEPT)[]) =>
    addresses.map((address) => ({ interfaceName: "eth0", address: address! }));
  runs.machine.interfaceAddresses = at([KEPT, LOST]);
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT, LOST)).then(() => {}));
  assert(serversOn(runs, "192.0.2.2").length === 1);
  runs.machine.interfaceAddresses = at([KEPT]);
  return runs;
}

function serversOn({ machine }: IpvsRuns, address: string): string[] {
  const keys = machine.kernel.table.getServers().map(({ key }) => `${key}`);
  return keys.filter((key) => key.includes(` ${address}:`));
}

Deno.test("IpvsBackend removes node ports of an address that was lost while no process ran", async () => {
  const runs = await runsWithLostAddress();
  // Foreign, on the same address: another port, and another protocol.
  for (const server of ["-t 192.0.2.2:443", "-u 192.0.2.2:30080"]) {
    runs.machine.kernel.take("ipvsadm", `-A ${server} -s wlc`);
  }
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}));
  assertEquals(serversOn(runs, "192.0.2.2"), ["-t 192.0.2.2:443", "-u 192.0.2.2:30080"]);
  assertEquals(serversOn(runs, "192.0.2.1"), ["-t 192.0.2.1:30080"]);
  assertEquals([...runs.machine.kernel.sets.get("KUBE-NODE-PORT-IPS")!], ["192.0.2.1"]);
});

Deno.test("IpvsBackend removes node ports of a lost address although the first write fails", async () => {
  const runs = await runsWithLostAddress();
  await runs.run(async (stage) => {
    runs.machine.refuses = () => "no";
    await assertRejects(() => stage.sync(nodePortPlan(KEPT)));
    await stage.pass(5_000);
    runs.machine.refuses = () => undefined;
  });
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}));
  assertEquals(serversOn(runs, "192.0.2.2"), []);
});

/** Reasons why a virtual server on a lost address may be foreign. */
const DOUBTS: readonly (readonly [
  string,
  (runs: IpvsRuns) => void,
  Partial<IpvsBackendOptions>?,
])[] = [
  ["the address is excluded", () => {}, {
    ipvs: { ...IPVS_SETTINGS.ipvs, excludeCIDRs: ["192.0.2.2/32"] },
  }],
  ["no set of the kernel has the address", ({ machine: { kernel } }) => {
    kernel.sets.get("KUBE-NODE-PORT-IPS")?.clear();
  }],
  ["no set of the kernel has the port", ({ machine: { kernel } }) => {
    kernel.sets.get("KUBE-NODE-PORT-TCP")?.clear();
  }],
];

for (const [doubt, raise, options] of DOUBTS) {
  Deno.test(`IpvsBackend leaves a virtual server on a lost address if ${doubt}`, async () => {
    const runs = await runsWithLostAddress();
    raise(runs);
    await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}), options);
    assertEquals(serversOn(runs, "192.0.2.2"), ["-t 192.0.2.2:30080"]);
  });
}

Deno.test("IpvsBackend removes a node port on a lost address that was added after the address", async () => {
  const runs = await runsWithLostAddress();
  const more = testServicePlan({ name: "more", clusterIp: "172.30.0.9", nodePort: 30_099, to: [] });
  runs.machine.interfaceAddresses = [KEPT, LOST].map((address) => ({
    interfaceName: "eth0",
    address: address!,
  }));
  await runs.run(async (stage) => {
    const plan = nodePortPlan(KEPT, LOST);
    await stage.sync(plan);
    await stage.pass(5_000);
    await stage.sync({ ...plan, services: new Map([...plan.services, [more.key, more]]) });
    await stage.pass(5_000);
  });
  assertEquals(serversOn(runs, "192.0.2.2").length, 2);
  runs.machine.interfaceAddresses = [{ interfaceName: "eth0", address: KEPT! }];
  await runs.run((stage) => stage.sync(nodePortPlan(KEPT)).then(() => {}));
  assertEquals(serversOn(runs, "192.0.2.2"), []);
});

Deno.test("IpvsBackend.cleanup() removes a lost address's node ports", async () => {
  const runs = await runsWithLostAddress();
  const stage = new IpvsStage(runs.machine);
  const preview = await stage.backend.previewCleanup!();
  assert(
    preview.removed.includes("virtual server 192.0.2.2:30080/TCP"),
    preview.removed.join("\n"),
  );
  assertEquals(serversOn(runs, "192.0.2.2").length, 1, "a preview changes nothing");
  assertEquals((await stage.backend.cleanup()).failed, []);
  assertEquals(runs.machine.kernel.table.getServers(), []);
});

Deno.test("IpvsBackend.compare() recognizes the node port of a lost address", async () => {
  const runs = await runsWithLostAddress();
  const stage = new IpvsStage(runs.machine);
  const found = await stage.backend.compare!(nodePortPlan(KEPT));
  assertStringIncludes(JSON.stringify(found), "192.0.2.2:30080");
});
