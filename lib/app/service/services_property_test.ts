/**
 * The incremental path from objects to plan against the path from scratch, over random histories of
 * objects, the Node, and syncs that fail or half succeed.
 *
 * @module
 */
import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import { testNodeState } from "../../../tests/support/builders/builders.ts";
import {
  type HistoryEvent,
  randomHistory,
} from "../../../tests/support/builders/random_history.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import { parseCidr } from "../../net/cidr.ts";
import type { PlanChanges, ProxyState } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import { Services } from "./services.ts";

const SETTINGS: PlanSettings = {
  nodeState: () => testNodeState(),
  planOptions: (family) => ({
    family,
    localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
    nodePortAddresses: { kind: "all" },
    masqueradeAll: false,
  }),
};

function createServices(): Services {
  return new Services({ clock: new FakeClock() }, "IPv4", SETTINGS);
}

/** One family's Services, and a data plane that holds one plan for each key. */
class History {
  readonly objects = {
    service: new Map<string, Service>(),
    slice: new Map<string, EndpointSlice>(),
    endpoints: new Map<string, Endpoints>(),
  };
  readonly services = createServices();
  readonly dataPlane = new Map<ServicePortKey, ServicePlan>();
  dataPlaneShared = this.services.plan.shared;
  #shared: Partial<ProxyState> = {};
  #isConfirmed = true;

  async handle(event: HistoryEvent): Promise<void> {
    const { service, slice, endpoints } = this.objects;
    const { services } = this;
    switch (event.kind) {
      case "service":
        return services.onService(...replace(service, event.name, event.object));
      case "slice":
        return services.onSlice(...replace(slice, event.name, event.object));
      case "endpoints":
        return services.onEndpoints(...replace(endpoints, event.name, event.object));
      case "shared":
        this.#shared = { ...this.#shared, ...event.changes };
        return pass(services, event.changes);
      case "sync":
        await this.sync(event.outcome);
    }
  }

  async sync(outcome: "ok" | "nothing" | "half"): Promise<void> {
    const { services } = this;
    const before = new Map(services.plan.services);
    const { changes } = await services.collectChanges([]);
    checkChanges(changes, before, services.plan.services, this.#isConfirmed);
    this.#isConfirmed = outcome === "ok";
    this.apply(changes, outcome);
    const report = { full: false, operations: {}, quarantined: [], services: 0 };
    if (outcome === "ok") services.synced(report, changes);
  }

  /** Takes away, then adds; a sync that half succeeds does every second step. */
  apply(changes: PlanChanges, outcome: "ok" | "nothing" | "half"): void {
    const { plan } = this.services;
    let step = 0;
    const works = () => outcome === "ok" || (outcome === "half" && ++step % 2 === 0);
    if (changes.everything) assertEquals(changes.upserted, new Set(plan.services.keys()));
    for (const key of changes.removed.keys()) if (works()) this.dataPlane.delete(key);
    for (const key of changes.upserted) {
      const planned = plan.services.get(key);
      assert(planned, `Upserted ${key} is not in the plan`);
      if (works()) this.dataPlane.set(key, planned);
    }
    if (changes.shared && works()) this.dataPlaneShared = plan.shared;
  }

  /** The Services of a process that starts now, with the same objects. */
  async fresh(): Promise<Services> {
    const services = createServices();
    const { service, slice, endpoints } = this.objects;
    for (const object of service.values()) services.onService(undefined, object);
    for (const object of endpoints.values()) services.onEndpoints(undefined, object);
    // In another order than they arrived in, which must not matter.
    for (const object of [...slice.values()].reverse()) services.onSlice(undefined, object);
    pass(services, this.#shared);
    await services.collectChanges([]);
    return services;
  }
}

function pass(
  services: Services,
  { node, serviceCidrs, interfaceAddresses }: Partial<ProxyState>,
): void {
  if (node) services.onNode(node);
  if (serviceCidrs) services.onServiceCidrs(serviceCidrs);
  if (interfaceAddresses) services.onInterfaceAddresses(interfaceAddresses);
}

function replace<T>(
  objects: Map<string, T>,
  name: string,
  object: T | undefined,
): [previous: T | undefined, current: T | undefined] {
  const previous = objects.get(name);
  if (object === undefined) objects.delete(name);
  else objects.set(name, object);
  return [previous, object];
}

/** Changes say what differs, exactly so after a good sync; equal plans keep their identity. */
function checkChanges(
  changes: PlanChanges,
  before: ReadonlyMap<ServicePortKey, ServicePlan>,
  after: ReadonlyMap<ServicePortKey, ServicePlan>,
  isExact: boolean,
): void {
  const differing = [...after].filter(([key, plan]) => before.get(key) !== plan);
  for (const [key] of differing) assert(changes.upserted.has(key), `${key} is not named`);
  const gone = [...before].filter(([key]) => !after.has(key));
  for (const [key] of gone) assert(changes.removed.has(key), `${key} is not named`);
  // Those of failed syncs are named again.
  if (isExact) {
    if (!changes.everything) assertEquals(changes.upserted.size, differing.length);
    assertEquals(changes.removed, new Map(gone));
  }
  for (const [key, plan] of after) {
    const old = before.get(key);
    if (old !== undefined && JSON.stringify(old) === JSON.stringify(plan)) {
      assertStrictEquals(plan, old);
    }
  }
}

Deno.test("Services give the plan from scratch after any history", async () => {
  await fc.assert(
    fc.asyncProperty(randomHistory, async (events) => {
      const history = new History();
      for (const event of events) await history.handle(event);
      await history.sync("ok");
      const { services, objects } = history;
      const fresh = await history.fresh();
      assertEquals(new Map(services.plan.services), new Map(fresh.plan.services));
      assertEquals(services.plan.shared, fresh.plan.shared);
      assertEquals(history.dataPlane, new Map(fresh.plan.services));
      assertEquals(history.dataPlaneShared, fresh.plan.shared);
      assertEquals(services.pending, false);
      // What is kept does not outlive its objects.
      const owners = new Set([
        ...[...objects.slice.keys()].map((name) => name.slice(0, -2)),
        ...objects.endpoints.keys(),
      ]);
      assertEquals(services.endpoints.size, owners.size);
    }),
    { numRuns: 300 },
  );
});
