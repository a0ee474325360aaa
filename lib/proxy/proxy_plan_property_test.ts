/**
 * The incremental way from objects to plan against the way from scratch, over random histories of
 * objects, the Node, and syncs that fail or half succeed.
 *
 * @module
 */
import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import { THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testNodeState } from "../../tests/support/builders/builders.ts";
import { planProxy } from "../../tests/support/builders/plan_proxy.ts";
import { type HistoryEvent, randomHistory } from "../../tests/support/builders/random_history.ts";
import { updatePlan } from "../../tests/support/builders/update_plan.ts";
import type { EndpointSlice } from "../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../api/kinds/endpoints.ts";
import type { Service } from "../api/kinds/service.ts";
import { parseCidr } from "../net/cidr.ts";
import { EndpointsChangeTracker } from "./endpoints_changes.ts";
import {
  createProxyPlan,
  mergePlanChanges,
  type PlanChanges,
  type PlanOptions,
} from "./proxy_plan.ts";
import { applyChanges, createProxyState, type StateChanges } from "./proxy_state.ts";
import { ServiceChangeTracker } from "./service_changes.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

const OPTIONS: PlanOptions = {
  family: "IPv4",
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
  nodePortAddresses: { kind: "all" },
  masqueradeAll: false,
};

/** One family's pipeline, and a data plane that holds one plan for each key. */
class Pipeline {
  readonly services = new Map<string, Service>();
  readonly slices = new Map<string, EndpointSlice>();
  readonly endpoints = new Map<string, Endpoints>();
  readonly serviceTracker = new ServiceChangeTracker(OPTIONS);
  readonly endpointsTracker = new EndpointsChangeTracker({
    family: "IPv4",
    nodeName: THIS_NODE,
    startedAtMs: 0,
  });
  readonly state = createProxyState(testNodeState());
  readonly plan = createProxyPlan(OPTIONS);
  readonly dataPlane = new Map<ServicePortKey, ServicePlan>();
  dataPlaneShared = this.plan.shared;
  sharedChanges: StateChanges = {};
  unsynced: PlanChanges | undefined;

  handle(event: HistoryEvent): void {
    switch (event.kind) {
      case "service":
        this.serviceTracker.update(
          this.services.get(event.name),
          replace(this.services, event.name, event.object),
        );
        break;
      case "slice": {
        const previous = this.slices.get(event.name);
        replace(this.slices, event.name, event.object);
        if (event.object) this.endpointsTracker.updateSlice(event.object, "set");
        else if (previous) this.endpointsTracker.updateSlice(previous, "delete");
        break;
      }
      case "endpoints": {
        const previous = this.endpoints.get(event.name);
        replace(this.endpoints, event.name, event.object);
        if (event.object) this.endpointsTracker.updateEndpoints(event.object, "set");
        else if (previous) this.endpointsTracker.updateEndpoints(previous, "delete");
        break;
      }
      case "shared":
        this.sharedChanges = { ...this.sharedChanges, ...event.changes };
        break;
      case "sync":
        this.sync(event.outcome);
    }
  }

  sync(outcome: "ok" | "nothing" | "half"): void {
    const before = new Map(this.plan.services);
    const dirty = applyChanges(this.state, {
      services: this.serviceTracker.drain(),
      endpoints: this.endpointsTracker.drain(),
      ...this.sharedChanges,
    });
    this.sharedChanges = {};
    const changes = updatePlan(this.plan, this.state, dirty, OPTIONS);
    checkChanges(changes, before, this.plan.services);
    const all = this.unsynced === undefined ? changes : mergePlanChanges(this.unsynced, changes);
    this.apply(all, outcome);
    this.unsynced = outcome === "ok" ? undefined : all;
  }

  /** Takes away, then adds; a sync that half succeeds does every second step. */
  apply(changes: PlanChanges, outcome: "ok" | "nothing" | "half"): void {
    let step = 0;
    const works = () => outcome === "ok" || (outcome === "half" && ++step % 2 === 0);
    if (changes.everything) {
      assertEquals(changes.upserted, new Set(this.plan.services.keys()));
    }
    for (const key of changes.removed.keys()) if (works()) this.dataPlane.delete(key);
    for (const key of changes.upserted) {
      const plan = this.plan.services.get(key);
      assert(plan, `Upserted ${key} is not in the plan`);
      if (works()) this.dataPlane.set(key, plan);
    }
    if (changes.shared && works()) this.dataPlaneShared = this.plan.shared;
  }

  /** The plan of a process that starts now, with the same objects. */
  fresh(): ReturnType<typeof planProxy> {
    const services = new ServiceChangeTracker(OPTIONS);
    const endpoints = new EndpointsChangeTracker({
      family: "IPv4",
      nodeName: THIS_NODE,
      startedAtMs: 0,
    });
    for (const object of this.services.values()) services.update(undefined, object);
    for (const object of this.endpoints.values()) endpoints.updateEndpoints(object, "set");
    // In another order than they arrived in, which must not matter.
    for (const object of [...this.slices.values()].reverse()) endpoints.updateSlice(object, "set");
    const { node, serviceCidrs, interfaceAddresses } = this.state;
    const state = createProxyState(node);
    applyChanges(state, {
      services: services.drain(),
      endpoints: endpoints.drain(),
      serviceCidrs,
      interfaceAddresses,
    });
    return planProxy(state, OPTIONS);
  }
}

function replace<T>(objects: Map<string, T>, name: string, object: T | undefined): T | undefined {
  if (object === undefined) objects.delete(name);
  else objects.set(name, object);
  return object;
}

/** Changes say exactly what differs: nothing too little, and (but for `everything`) nothing too much. */
function checkChanges(
  changes: PlanChanges,
  before: ReadonlyMap<ServicePortKey, ServicePlan>,
  after: ReadonlyMap<ServicePortKey, ServicePlan>,
): void {
  const differing = [...after].filter(([key, plan]) => before.get(key) !== plan);
  if (!changes.everything) {
    assertEquals(changes.upserted, new Set(differing.map(([key]) => key)));
  }
  assertEquals(changes.removed, new Map([...before].filter(([key]) => !after.has(key))));
  for (const [key, plan] of after) {
    const old = before.get(key);
    if (old !== undefined && JSON.stringify(old) === JSON.stringify(plan)) {
      assertStrictEquals(plan, old);
    }
  }
}

Deno.test("updatePlan() and mergePlanChanges() give the plan from scratch after any history", () => {
  fc.assert(
    fc.property(randomHistory, (events) => {
      const pipeline = new Pipeline();
      for (const event of events) pipeline.handle(event);
      pipeline.sync("ok");
      const fresh = pipeline.fresh();
      assertEquals(new Map(pipeline.plan.services), new Map(fresh.services));
      assertEquals(pipeline.plan.shared, fresh.shared);
      assertEquals(pipeline.dataPlane, new Map(fresh.services));
      assertEquals(pipeline.dataPlaneShared, fresh.shared);
      // What is kept does not outlive its objects.
      const owners = new Set(
        [...pipeline.slices.keys()].map((name) => name.slice(0, -2)).concat(
          [...pipeline.endpoints.keys()],
        ),
      );
      assertEquals(pipeline.endpointsTracker.size, owners.size);
    }),
    { numRuns: 300 },
  );
});
