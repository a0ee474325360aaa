import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { loadBalancer, pool } from "../../../tests/support/builders/routed_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeKubeClient } from "../../../tests/support/fakes/fake_kube_client.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { Lease } from "../../api/kinds/lease.ts";
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { EventSink } from "../../kube/event.ts";
import { Informer } from "../../kube/informer.ts";
import type { Clock } from "../../os/clock.ts";
import { AddressAssigner } from "./address_assigner.ts";
import { RoutingLeases } from "./routing_leases.ts";

const LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-relay-allocator";
const SERVICES = ["a", "b", "c"];

/** Three Services, and processes that may assign addresses to them. */
class Cluster {
  readonly clock = new FakeClock();
  readonly client = new FakeKubeClient();
  readonly processes: { leases: RoutingLeases; services: Informer<RoutedService> }[] = [];

  constructor() {
    this.client.onChange = (path, object) => {
      for (const { leases, services } of this.processes) {
        if (path === LEASE) leases.onLease(object as unknown as Lease, { isDeleted: false });
        else services.upsert(object as unknown as RoutedService);
      }
    };
    for (const name of SERVICES) this.client.put(serviceAt(name), loadBalancer({ name }));
  }

  get leader(): string | undefined {
    return (this.client.objects.get(LEASE)?.spec as Lease["spec"] | undefined)?.holderIdentity;
  }

  get assigned(): readonly string[] {
    return SERVICES.flatMap((name) => {
      const { status } = this.client.objects.get(serviceAt(name)) as unknown as RoutedService;
      return status?.loadBalancer?.ingress?.map(({ ip }) => ip ?? "") ?? [];
    });
  }

  /** Starts a process, whose edges may be worse than the others'. */
  start(
    nodeName: string,
    { events = { record: () => {} }, pace = {} }: {
      readonly events?: EventSink;
      readonly pace?: Partial<Clock>;
    } = {},
  ) {
    const { client, clock } = this;
    const logger = new MemoryLogger();
    const services = new Informer<RoutedService>();
    for (const name of SERVICES) {
      services.upsert(client.objects.get(serviceAt(name)) as unknown as RoutedService);
    }
    const slow: Clock = {
      now: () => clock.now(),
      wallNow: () => clock.wallNow(),
      setTimer: (ms, callback) => clock.setTimer(ms, callback),
      sleep: (ms, signal) => clock.sleep(ms, signal),
      yieldToEventLoop: () => clock.yieldToEventLoop(),
      nextTurn: () => clock.nextTurn(),
      ...pace,
    };
    const settings = {
      pools: [pool("default", ["192.0.2.0/28"])],
      loadBalancerClasses: ["ours"],
      defaultLoadBalancerClass: true,
    };
    const dependencies = { clock: slow, logger, random: () => 0 };
    const assigner = new AddressAssigner({ ...dependencies, events }, { settings, services });
    const leases = new RoutingLeases(
      { ...dependencies, clock, nodeName },
      { leaseNamespace: "kube-system", leaseDurationSeconds: 3 },
      assigner,
      undefined,
    );
    this.processes.push({ leases, services });
    const end = new AbortController();
    const running = leases.run(client as unknown as KubeClient, end.signal);
    const stop = async () => {
      end.abort();
      await running;
      await leases.release();
    };
    return { leases, logger, stop };
  }
}

function serviceAt(name: string): string {
  return `/api/v1/namespaces/default/services/${name}`;
}

/** Each step of an update takes as long as this, so that it pauses after each. */
function stepsOf(clock: FakeClock, ms: number): Partial<Clock> {
  let reads = 0;
  return { now: () => clock.now() + 5 * ++reads, yieldToEventLoop: () => clock.sleep(ms) };
}

const BROKEN = [
  {
    name: "whose update fails",
    edges: () => ({
      events: {
        record: () => {
          throw new Error("The event cannot be recorded");
        },
      },
    }),
    reason: "The event cannot be recorded",
  },
  {
    name: "whose update does not end",
    edges: (clock: FakeClock) => ({ pace: stepsOf(clock, 59_000) }),
    reason: "An update has not ended within 60 s",
  },
];

for (const { name, edges, reason } of BROKEN) {
  Deno.test(`a leader ${name} gives its Lease up, and another node assigns addresses`, async () => {
    const cluster = new Cluster();
    const { clock } = cluster;
    const broken = cluster.start("broken", edges(clock));
    await clock.advance(500);
    assertEquals(cluster.leader, "broken");
    const other = cluster.start("other");
    for (let second = 0; second < 130 && cluster.leader === "broken"; second++) {
      await clock.advance(1_000);
    }
    await clock.advance(2_000);
    assertEquals(cluster.leader, "other");
    assertEquals(cluster.assigned.toSorted(), ["192.0.2.0", "192.0.2.1", "192.0.2.2"]);
    assertStringIncludes(broken.leases.failure ?? "", reason);
    await clock.advance(60_000);
    assertEquals([broken.leases.failure, cluster.leader], [undefined, "other"]);
    await Promise.all([broken.stop(), clock.advance(200_000)]);
    await other.stop();
    assertEquals(clock.pendingTimers, 0);
  });
}

Deno.test("a leader that is alone claims its Lease again after it could not assign", async () => {
  const cluster = new Cluster();
  const { clock } = cluster;
  let failures = 1;
  const events = {
    record: () => {
      if (failures-- > 0) throw new Error("The event cannot be recorded");
    },
  };
  const { leases, logger, stop } = cluster.start("alone", { events });
  await clock.advance(5_000);
  assertEquals([cluster.leader, cluster.assigned.length], ["", 0]);
  assert(leases.failure !== undefined);
  assertEquals(logger.lines.filter(({ level }) => level === "error").length, 1);
  await clock.advance(62_000);
  assertEquals([cluster.leader, cluster.assigned.length], ["alone", 3]);
  await stop();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("a leader ends during an update when the process ends", async () => {
  const cluster = new Cluster();
  const { clock } = cluster;
  const { stop } = cluster.start("slow", { pace: stepsOf(clock, 1_000) });
  await clock.advance(2_000);
  let hasEnded = false;
  const stopping = stop().then(() => hasEnded = true);
  // The step that runs ends, none begins.
  await clock.advance(1_000);
  assertEquals([hasEnded, cluster.leader], [true, ""]);
  await stopping;
});
