import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  FakeIpvsKernel,
  type FakeOutcome,
  type FakePacket,
} from "../../tests/support/fakes/fake_ipvs_kernel.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { AppliedServers } from "./applied_servers.ts";
import { diffInSteps, diffIpvs, EMPTY_KERNEL, type KernelState, KNOWN_KERNEL } from "./diff.ts";
import { IpvsLayout } from "./layout.ts";
import { defaultIpvsOptions } from "./render_options.ts";
import { type IpvsStep, stepSize } from "./steps.ts";

const NODE = parseIpAddress("192.168.0.2");
const OPTIONS = { ...defaultIpvsOptions("IPv4"), nodeAddresses: new Set([NODE]) };
const SHARED = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
  nodePortAddresses: [NODE, parseIpAddress("127.0.0.1")],
});

/** A layout, and a kernel that takes its batches. */
class Stage {
  readonly layout = new IpvsLayout(SHARED, OPTIONS);
  readonly applied = new AppliedServers();
  readonly kernel = new FakeIpvsKernel();

  constructor(kernel: KernelState = EMPTY_KERNEL) {
    this.kernel.addresses.add(NODE);
    this.sync(kernel);
  }

  sync(kernel: KernelState = KNOWN_KERNEL, onLine?: (line: string) => void): readonly IpvsStep[] {
    const { steps, servers } = diffIpvs(this.layout, this.applied, kernel);
    this.kernel.run(steps, onLine);
    for (const [key, server] of servers) this.applied.confirm(key, server);
    this.layout.settle();
    return steps;
  }
}

/** The number-th ServicePort, with two endpoints on other nodes. */
function plan(number: number, to?: readonly string[]): ServicePlan {
  const [high, low] = [number >> 8, number & 255];
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.${high}.${low}`,
    masqueradeInternal: "off-cluster",
    to: to ?? [`10.1.${high}.${low}:8080`, `10.2.${high}.${low}:8080`],
  });
}

function sizes(steps: readonly IpvsStep[]): string[] {
  return steps.map((step) => `${step.tool} ${stepSize(step)}`);
}

Deno.test("diffIpvs() gives no step when nothing changed", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  assert(stage.sync().length > 0);
  assertEquals(stage.sync(), []);
  stage.layout.set({ ...plan(1) });
  assertEquals(stage.sync(), [], "the same once more");
});

for (const count of [100, 10_000]) {
  Deno.test(`diffIpvs() needs the same few lines for one change among ${count}`, () => {
    const stage = new Stage();
    for (let number = 1; number <= count; number++) stage.layout.set(plan(number));
    assertEquals(stage.sync().map(({ tool }) => tool), ["ipset", "ipvsadm", "ip"]);
    stage.layout.set(plan(7, ["10.1.0.7:8080", "10.3.0.7:8080"]));
    assertEquals(sizes(stage.sync()), ["ipvsadm 2"], "one endpoint in the place of another");
    stage.layout.set(plan(count + 1));
    assertEquals(sizes(stage.sync()), ["ipset 3", "ipvsadm 3", "ip 1"], "one Service more");
    stage.layout.delete(plan(count + 1).key);
    assertEquals(sizes(stage.sync()), ["ipset 1", "ipvsadm 1", "ip 1", "ipset 2"], "one less");
  });
}

Deno.test("diffIpvs() is one batch for each tool if there is nothing yet", () => {
  const layout = new IpvsLayout(SHARED, OPTIONS);
  for (let number = 1; number <= 50; number++) layout.set(plan(number));
  const { steps } = diffIpvs(layout, new AppliedServers(), EMPTY_KERNEL);
  assertEquals(steps.map(({ tool }) => tool), ["ipset", "iptables", "ipvsadm", "ip"]);
});

Deno.test("diffIpvs() keeps table nat of another mode until all else is there", () => {
  const layout = new IpvsLayout(SHARED, OPTIONS);
  layout.set(plan(1));
  const { steps } = diffIpvs(layout, new AppliedServers(), { ...EMPTY_KERNEL, isTakeover: true });
  const words = steps.map((step) =>
    step.tool === "iptables" ? step.lines.filter((line) => line.startsWith("*")).join() : step.tool
  );
  assertEquals(words, ["ipset", "*mangle,*filter", "ipvsadm", "ip", "*nat"]);
});

Deno.test("diffIpvs() refuses nothing that a kube-proxy before it served", () => {
  const stage = new Stage();
  const service = plan(1);
  stage.layout.set(service);
  stage.sync();
  // kube-proxy has the device and the servers, and no set by our names.
  stage.kernel.sets.delete("KUBE-SERVED");
  stage.layout.sets.SERVED.adopt(new Set());
  const state = { ...KNOWN_KERNEL, hasRules: false, missingSets: new Set(["SERVED"] as const) };
  const { steps } = diffIpvs(stage.layout, stage.applied, state);
  const served = steps.findIndex((step) =>
    step.tool === "ipset" && step.lines.some((line) => line.startsWith("add KUBE-SERVED "))
  );
  assert(served >= 0);
  assert(served < steps.findIndex(({ tool }) => tool === "iptables"), sizes(steps).join());
});

Deno.test("diffInSteps() pauses on its way through many servers", () => {
  const layout = new IpvsLayout(SHARED, OPTIONS);
  for (let number = 1; number <= 1_000; number++) layout.set(plan(number));
  const work = diffInSteps(layout, new AppliedServers(), EMPTY_KERNEL);
  assertEquals(work.next().done, false);
});

Deno.test("diffIpvs() drains a TCP endpoint, and removes one of UDP or SCTP at once", () => {
  for (
    const [protocol, line] of [
      ["TCP", "editReal"],
      ["UDP", "deleteReal"],
      ["SCTP", "deleteReal"],
    ] as const
  ) {
    const stage = new Stage();
    stage.layout.set({ ...plan(1), protocol });
    stage.sync();
    stage.layout.set({ ...plan(1, ["10.1.0.1:8080"]), protocol });
    const [step] = stage.sync();
    assert(step?.tool === "ipvsadm");
    assertEquals(step.operations.map(({ kind }) => kind), [line], protocol);
  }
});

Deno.test("diffIpvs() gives an endpoint that comes back its weight again", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.sync();
  stage.layout.set(plan(1, ["10.1.0.1:8080"]));
  stage.sync();
  stage.layout.set(plan(1));
  const [step] = stage.sync();
  assert(step?.tool === "ipvsadm");
  assertEquals(step.operations.map(({ kind }) => kind), ["editReal"]);
});

const WEB = { protocol: "TCP", port: 80 } as const;

/** All packets that random plans have something to say about. */
const PACKETS: readonly FakePacket[] = [
  ...Array.from(
    { length: 16 },
    (_, low) => ({ ...WEB, address: parseIpAddress(`172.30.0.${low}`) }),
  ),
  ...["192.168.99.1", "192.168.99.2", "1.2.3.4"].flatMap((address) =>
    [80, 443].map((port) => ({ ...WEB, port, address: parseIpAddress(address) }))
  ),
];

/** Whether a packet may meet this on the way from one fate to another. What goes refuses before. */
function isBetween(fate: FakeOutcome, before: FakeOutcome, after: FakeOutcome): boolean {
  if (fate === "reject" && after === "away") return true;
  if (typeof fate === "string") return fate === before || fate === after;
  const known = [before, after].flatMap((each) => typeof each === "string" ? [] : each);
  return fate.every((endpoint) => known.includes(endpoint));
}

const step = fc.oneof(
  { arbitrary: randomServicePlan.map((service) => ({ kind: "set" as const, service })), weight: 6 },
  { arbitrary: fc.record({ kind: fc.constant("delete" as const), at: fc.nat(60) }), weight: 2 },
  { arbitrary: fc.constant({ kind: "sync" as const }), weight: 3 },
);

Deno.test("diffIpvs() exposes no packet to a partial state, and gives the result of a fresh load", () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 100, size: "max" }), (steps) => {
      const stage = new Stage();
      const plans = new OwnedPlans(stage.layout, stage.layout.shared);
      const fates = (kernel: FakeIpvsKernel) => PACKETS.map((packet) => kernel.fate(packet));
      for (const step of [...steps, { kind: "sync" as const }]) {
        if (step.kind === "set") {
          plans.set(step.service);
        } else if (step.kind === "delete") {
          plans.delete(testServicePlan({ name: String(step.at) }).key);
        } else {
          const seen: { readonly line: string; readonly fates: FakeOutcome[] }[] = [];
          const before = fates(stage.kernel);
          stage.sync(KNOWN_KERNEL, (line) => seen.push({ line, fates: fates(stage.kernel) }));
          const after = fates(stage.kernel);
          for (const [index, packet] of PACKETS.entries()) {
            for (const { line, fates } of seen) {
              const [fate, old, next] = [fates[index]!, before[index]!, after[index]!];
              const what = `${packet.address}:${packet.port} after '${line}'`;
              assert(isBetween(fate, old, next), `${what}: ${fate}, between ${old} and ${next}`);
            }
          }
        }
      }
      const fresh = new Stage();
      for (const service of plans.values()) fresh.layout.set(service);
      fresh.sync();
      assertEquals(stage.kernel.dump(), fresh.kernel.dump());
    }),
    { numRuns: 60 },
  );
});
