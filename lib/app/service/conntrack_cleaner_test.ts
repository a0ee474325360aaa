import { serviceSyncEvent } from "../../../tests/support/builders/sync_events.ts";
import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { Conntrack } from "../../os/conntrack.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { TrackedFlow } from "../../proxy/stale_flows.ts";
import { ConntrackCleaner } from "./conntrack_cleaner.ts";

/** A table in memory. */
class FakeConntrack implements Pick<Conntrack, "listFlows" | "deleteFlows"> {
  readonly flows = new Set<TrackedFlow>();
  /** Thrown by the next lists, one each. */
  readonly failures: Error[] = [];
  /** Waited for by each list. */
  gate: Promise<void> | undefined;
  /** Waited for by each deletion, unless that is ended before. */
  deleteGate: Promise<void> | undefined;
  lists: IpFamily[] = [];
  open = 0;

  async listFlows(family: IpFamily, { onFlow }: Parameters<Conntrack["listFlows"]>[1]) {
    assertEquals(this.open++, 0, "one run at a time");
    this.lists.push(family);
    for (const flow of this.flows) onFlow(flow);
    await this.gate;
    this.open--;
    const failure = this.failures.shift();
    if (failure) throw failure;
    return this.flows.size;
  }

  /** As the kernel, takes whatever is like the stale ones by then. */
  async deleteFlows(
    _: IpFamily,
    stale: readonly TrackedFlow[],
    { signal }: NonNullable<Parameters<Conntrack["deleteFlows"]>[2]>,
  ) {
    const ended = Promise.withResolvers<void>();
    signal?.addEventListener("abort", () => ended.resolve());
    if (stale.length > 0) await Promise.race([this.deleteGate, ended.promise]);
    if (signal?.aborted) throw new Error("the caller gave up");
    const before = this.flows.size;
    for (const { replySource } of stale) {
      for (const flow of this.flows) {
        if (flow.replySource === replySource) this.flows.delete(flow);
      }
    }
    return before - this.flows.size;
  }
}

function flowTo(endpoint: string): TrackedFlow {
  return {
    destination: parseIpAddress("10.96.0.10"),
    destinationPort: parsePort(53),
    replySource: parseIpAddress(endpoint),
    replySourcePort: parsePort(53),
  };
}

function planTo(...endpoints: readonly string[]): ProxyPlan {
  return testProxyPlan([testServicePlan({
    protocol: "UDP",
    clusterIp: "10.96.0.10",
    port: 53,
    endpoints: endpoints.map((address) => testEndpoint(`${address}:53`)),
  })]);
}

const A = "10.1.0.1";
const B = "10.1.0.2";

interface Cleaning {
  readonly removed: readonly (readonly [key: string, flows: number])[];
  readonly error: string | undefined;
}

async function withCleaner(
  test: (rig: {
    readonly clock: FakeClock;
    readonly conntrack: FakeConntrack;
    readonly logger: MemoryLogger;
    readonly runs: { readonly family: IpFamily; readonly deleted: number }[];
    /** The cleanings that the change log received. */
    readonly cleanings: Cleaning[];
    /** Announces a sync before the rules change. */
    readonly begin: (next: ProxyPlan, previous?: ProxyPlan) => Promise<void> | void;
    readonly sync: (next: ProxyPlan, previous?: ProxyPlan, family?: IpFamily) => void;
  }) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const conntrack = new FakeConntrack();
  const logger = new MemoryLogger();
  const runs: { family: IpFamily; deleted: number }[] = [];
  const cleanings: Cleaning[] = [];
  const cleaner = new ConntrackCleaner({
    clock,
    logger,
    conntrack,
    metrics: { conntrackReconciled: (family, { deleted }) => runs.push({ family, deleted }) },
    changes: {
      flowsCleaned: (_, { removed, error }) =>
        void cleanings.push({ removed: [...removed], error }),
    },
  });
  const controller = new AbortController();
  const running = cleaner.run(controller.signal);
  const begin = (next: ProxyPlan, previous?: ProxyPlan) =>
    cleaner.on(serviceSyncEvent("syncing", "IPv4", next, testPlanChanges(next, previous)));
  const sync = (next: ProxyPlan, previous?: ProxyPlan, family: IpFamily = "IPv4") =>
    cleaner.on(serviceSyncEvent("synced", family, next, testPlanChanges(next, previous)));
  await test({ clock, conntrack, logger, runs, cleanings, begin, sync });
  controller.abort();
  await running;
  assertEquals(clock.pendingTimers, 0);
}

Deno.test("ConntrackCleaner deletes flows that a sync made stale, and counts them", async () => {
  await withCleaner(async ({ clock, conntrack, runs, sync }) => {
    conntrack.flows.add(flowTo(A)).add(flowTo(B));
    const first = planTo(A, B);
    sync(first);
    await clock.advance(0);
    assertEquals([conntrack.flows.size, conntrack.lists], [2, ["IPv4"]], "nothing at a restart");
    const second = planTo(B);
    sync(second, first);
    await clock.advance(0);
    assertEquals([...conntrack.flows].map(({ replySource }) => replySource), [parseIpAddress(B)]);
    assertEquals(runs, [{ family: "IPv4", deleted: 0 }, { family: "IPv4", deleted: 1 }]);
    sync(second, second);
    await clock.advance(600_000);
    assertEquals(conntrack.lists.length, 2, "a sync that changes nothing is no reason");
  });
});

Deno.test("ConntrackCleaner reports flows of each ServicePort, and failures, to the change log", async () => {
  await withCleaner(async ({ clock, conntrack, cleanings, sync }) => {
    const [key = ""] = planTo().services.keys();
    const first = planTo(A, B);
    sync(first);
    await clock.advance(0);
    conntrack.flows.add(flowTo(A)).add(flowTo(A)).add(flowTo(B));
    conntrack.failures.push(new Error("no such program"));
    const second = planTo(B);
    sync(second, first);
    await clock.advance(1_000);
    sync(testProxyPlan([]), second);
    await clock.advance(0);
    const reports = cleanings.map(({ removed, error }) => [removed, error]);
    assertEquals(reports, [
      [[], undefined],
      [[], "no such program"],
      [[[key, 2]], undefined],
      [[[key, 1]], undefined],
    ]);
  });
});

Deno.test("ConntrackCleaner looks at everything again after an hour, at a sync", async () => {
  await withCleaner(async ({ clock, conntrack, sync }) => {
    const plan = planTo(A);
    sync(plan);
    await clock.advance(3_600_000);
    conntrack.flows.add(flowTo(B));
    assertEquals(conntrack.lists.length, 1, "no timer of its own");
    sync(plan, plan);
    await clock.advance(0);
    assertEquals(conntrack.flows.size, 0);
  });
});

Deno.test("ConntrackCleaner spares a flow whose endpoint is added while the table is read", async () => {
  await withCleaner(async ({ clock, conntrack, sync }) => {
    const gate = Promise.withResolvers<void>();
    conntrack.gate = gate.promise;
    conntrack.flows.add(flowTo(B));
    const first = planTo(A);
    sync(first);
    await clock.advance(0);
    sync(planTo(A, B), first);
    gate.resolve();
    await clock.advance(0);
    assertEquals(conntrack.flows.size, 1);
  });
});

/** Deletes flows to A, which was removed, and is delayed meanwhile. */
async function deleteSlowly(
  { clock, conntrack, sync }: {
    readonly clock: FakeClock;
    readonly conntrack: FakeConntrack;
    readonly sync: (next: ProxyPlan, previous?: ProxyPlan) => void;
  },
): Promise<{ readonly gone: ProxyPlan; readonly finish: () => void }> {
  const first = planTo(A, B);
  const gone = planTo(B);
  const gate = Promise.withResolvers<void>();
  conntrack.flows.add(flowTo(A));
  sync(first);
  await clock.advance(0);
  conntrack.deleteGate = gate.promise;
  sync(gone, first);
  await clock.advance(0);
  return { gone, finish: gate.resolve };
}

Deno.test("ConntrackCleaner deletes no more before the rules have an endpoint again", async () => {
  await withCleaner(async (rig) => {
    const { clock, conntrack, logger, begin, sync } = rig;
    const { gone, finish } = await deleteSlowly(rig);
    const back = planTo(A, B);
    await begin(back, gone);
    const made = flowTo(A);
    conntrack.flows.add(made);
    finish();
    sync(back, gone);
    await clock.advance(0);
    assert(conntrack.flows.has(made), "a flow that the newest rules made");
    assertEquals(logger.lines.filter(({ level }) => level !== "verbose"), [], "nothing is wrong");
  });
});

/** One array: another one makes every node port a suspect. */
const NODE_ADDRESSES = ["192.0.2.1", "192.0.2.2"].map(parseIpAddress);

/** Two Services, of which one has a node port. */
function twoServices(
  dns: readonly string[],
  web: readonly string[],
  nodePortAddresses: readonly IpAddress[] = NODE_ADDRESSES,
): ProxyPlan {
  const service = (name: string, clusterIp: string, endpoints: readonly string[]) => ({
    ...{ name, clusterIp, protocol: "UDP" as const, port: 53 },
    endpoints: endpoints.map((address) => testEndpoint(`${address}:53`)),
  });
  return testProxyPlan([
    testServicePlan(service("dns", "10.96.0.10", dns)),
    testServicePlan({ ...service("web", "10.96.0.20", web), nodePort: 30_053 }),
  ], { shared: { nodePortAddresses } });
}

function flowToNodePort(endpoint: string): TrackedFlow {
  const [destination, destinationPort] = [parseIpAddress("192.0.2.1"), parsePort(30_053)];
  return { ...flowTo(endpoint), destination, destinationPort };
}

Deno.test("ConntrackCleaner continues deleting when the node loses an address meanwhile", async () => {
  await withCleaner(async ({ clock, conntrack, runs, begin, sync }) => {
    const first = twoServices([A, "10.1.0.3"], ["10.1.0.4"]);
    sync(first);
    await clock.advance(0);
    conntrack.flows.add(flowTo(A)).add(flowToNodePort("10.1.0.4"));
    const gate = Promise.withResolvers<void>();
    conntrack.deleteGate = gate.promise;
    const second = twoServices(["10.1.0.3"], [B]);
    sync(second, first);
    await clock.advance(0);
    const third = twoServices(["10.1.0.3"], [B], NODE_ADDRESSES.slice(1));
    await begin(third, second);
    sync(third, second);
    // Before this sync all flows of the deletion are judged again.
    await begin(third, third);
    gate.resolve();
    await clock.advance(0);
    assertEquals([conntrack.flows.size, runs[1]], [0, { family: "IPv4", deleted: 2 }]);
  });
});

Deno.test("ConntrackCleaner repeats a deletion that a sync ended for one of its flows", async () => {
  await withCleaner(async ({ clock, conntrack, begin, sync }) => {
    const first = twoServices([A, B], ["10.1.0.4"]);
    sync(first);
    await clock.advance(0);
    conntrack.flows.add(flowTo(A)).add(flowToNodePort("10.1.0.4"));
    conntrack.deleteGate = new Promise(() => {});
    const gone = twoServices([B], [B]);
    sync(gone, first);
    await clock.advance(0);
    const back = twoServices([A, B], [B]);
    sync(back, gone);
    await begin(back, back);
    conntrack.deleteGate = undefined;
    sync(back, back);
    await clock.advance(0);
    assertEquals([...conntrack.flows], [flowTo(A)]);
  });
});

for (const beginsAt of ["while the table is read", "before the table is read"]) {
  Deno.test(`ConntrackCleaner spares flows of a sync that begins ${beginsAt}, and checks again after it`, async () => {
    await withCleaner(async ({ clock, conntrack, begin, sync }) => {
      const first = planTo(A, B);
      const gone = planTo(B);
      sync(first);
      await clock.advance(0);
      const gate = Promise.withResolvers<void>();
      conntrack.gate = gate.promise;
      conntrack.flows.add(flowTo(A));
      sync(gone, first);
      if (beginsAt.startsWith("while")) await clock.advance(0);
      await begin(first, gone);
      await clock.advance(0);
      gate.resolve();
      await clock.advance(0);
      assertEquals(conntrack.flows.size, 1, "the kernel may have the endpoint already");
      assertEquals(conntrack.lists.length, 2, "nothing to do before the sync has ended");
      // That sync failed; before the next one the endpoint had gone once more.
      await begin(gone, gone);
      sync(gone, gone);
      await clock.advance(0);
      assertEquals(conntrack.flows.size, 0);
    });
  });
}

Deno.test("ConntrackCleaner keeps its work until it succeeds, and warns once", async () => {
  await withCleaner(async ({ clock, conntrack, logger, sync }) => {
    const first = planTo(A);
    sync(first);
    await clock.advance(0);
    conntrack.flows.add(flowTo(A));
    conntrack.failures.push(...Array.from({ length: 12 }, () => new Error("no such program")));
    sync(planTo(), first);
    await clock.advance(3_600_000);
    assertEquals(conntrack.flows.size, 0);
    assertEquals(conntrack.lists.length, 14);
    const reports = logger.lines.filter(({ level }) => level !== "verbose");
    assertEquals(reports.map(({ level }) => level), ["warn", "info"]);
    assert(reports[0]!.message.startsWith("Cannot delete stale flows"));
  });
});
