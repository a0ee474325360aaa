import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

const WEB = testServicePlan({
  name: "web",
  clusterIp: "172.30.0.1",
  nodePort: 30_080,
  to: ["10.1.0.1:8080", "10.2.0.1:8080"],
});
const PLAN = ipvsPlanOf(WEB);

/** kube-proxy's bound. */
const SET_OPTIONS = "hash:ip,port family inet hashsize 1024 maxelem 65536";

async function golden(): Promise<string> {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  return stage.machine.dump();
}

/** A machine on which these lines have been taken by `ipset restore`. */
function withSets(...lines: readonly string[]): FakeIpvsMachine {
  const machine = new FakeIpvsMachine();
  for (const line of lines) machine.kernel.take("ipset", line);
  return machine;
}

/** Objects of another program, or of a killed run, that conflict with those of this mode. */
const IN_THE_WAY = [
  [
    "a set of other bounds",
    `create KUBE-CLUSTER-IP ${SET_OPTIONS}`,
    "add KUBE-CLUSTER-IP 1.2.3.4,tcp:1",
  ],
  [
    "what a run left that was killed before a swap",
    "create NEW-KUBE-CLUSTER-IP hash:ip family inet",
  ],
  [
    "what a run left that was killed after a swap",
    `create NEW-KUBE-EXTERNAL-IP ${SET_OPTIONS}`,
    "add NEW-KUBE-EXTERNAL-IP 1.2.3.4,tcp:1",
  ],
  [
    "what a run left, and a set that is replaced again",
    "create NEW-KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 100",
    `create KUBE-CLUSTER-IP ${SET_OPTIONS}`,
  ],
  ["a set of another type", "create KUBE-IPVS-IPS hash:net family inet hashsize 64 maxelem 9"],
  ["a set of another family", "create KUBE-IPVS-IPS hash:ip family inet6 hashsize 64 maxelem 9"],
] as const;

for (const [what, ...lines] of IN_THE_WAY) {
  Deno.test(`IpvsBackend reaches the wanted state in spite of ${what}`, async () => {
    await using stage = await IpvsStage.started(withSets(...lines));
    await stage.sync(PLAN);
    assertEquals(stage.machine.dump(), await golden());
  });
}

Deno.test("IpvsBackend puts a real server right to which packets go by another way", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  const { kernel } = stage.machine;
  kernel.take("ipvsadm", "-e -t 172.30.0.1:80 -r 10.1.0.1:8080 -g -w 1");
  kernel.take("ipvsadm", "-a -t 172.30.0.1:80 -r 10.9.0.1:8080 -i -w 1");
  await using other = await IpvsStage.started(stage.machine);
  const found = (await other.backend.compare?.(PLAN) ?? []).map(({ found }) => found);
  assertEquals(found, ["another forwarding", "tunnel, weight 1"]);
  await other.sync(PLAN);
  const [server] = kernel.table.getServers();
  const reals = kernel.table.getReals(server!.key);
  assertEquals(reals.map(({ forwarding, weight }) => [forwarding, weight]), [
    ["-m", 1],
    ["-m", 1],
    ["-i", 0],
  ]);
});

Deno.test("IpvsBackend leaves a device of another kind and its addresses alone", async () => {
  const machine = new FakeIpvsMachine();
  machine.kernel.hasDevice = true;
  machine.isDummy = false;
  machine.kernel.addresses.add("192.0.2.1");
  await using stage = await IpvsStage.started(machine);
  await assertRejects(() => stage.sync(PLAN), Error, "is not a dummy device");
  assertEquals([...machine.kernel.addresses], ["192.0.2.1"]);
  assertEquals(machine.kernel.table.getServers(), []);
});

Deno.test("removeOwnObjects() removes all sets except one in use, and this one when it is free", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  const { machine } = stage;
  machine.kernel.take("ipset", "create NEW-KUBE-CLUSTER-IP hash:ip family inet");
  machine.refuses = (tool, line) =>
    tool === "ipset" && line === "destroy KUBE-CLUSTER-IP"
      ? "Set cannot be destroyed: it is in use by a kernel component"
      : undefined;
  const { failed } = await stage.backend.cleanup();
  assertEquals(failed.length, 1);
  assert(failed[0]?.startsWith("ipset KUBE-CLUSTER-IP: "), failed[0]);
  assertEquals([...machine.kernel.sets.keys()].sort(), ["KUBE-CLUSTER-IP", "KUBE-SERVED"]);
  machine.refuses = () => undefined;
  assertEquals((await stage.backend.cleanup()).failed, []);
  assertEquals([...machine.kernel.sets.keys()], []);
  assertEquals(machine.kernel.table.getServers(), []);
});

Deno.test("removeOwnObjects() removes nothing if the owner of the virtual servers is unknown", async () => {
  await using stage = await IpvsStage.started();
  await stage.sync(PLAN);
  const before = stage.machine.dump();
  stage.machine.commands.on("ipset save", { code: 1, stderr: "ipset: no memory" });
  const { failed, removed } = await stage.backend.cleanup();
  assertEquals([failed, removed], [["entries of ipsets: ipset: no memory"], []]);
  assertEquals(stage.machine.dump(), before);
});

Deno.test("removeOwnObjects() removes the objects of a first sync that was killed at any point", async () => {
  const counting = await IpvsStage.started();
  await counting.sync(PLAN);
  const lines = counting.machine.commands.calls.find(({ line }) => line === "ipset restore")!.stdin
    .split("\n");
  await counting[Symbol.asyncDispose]();
  for (const upTo of [1, 2, 5, 15, 20]) {
    const machine = withSets(...lines.slice(0, upTo));
    await using stage = await IpvsStage.started(machine);
    await stage.backend.cleanup();
    assertEquals([...machine.kernel.sets.keys()], [], `${upTo} lines`);
  }
});
