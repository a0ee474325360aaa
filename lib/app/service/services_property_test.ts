/**
 * The incremental path from objects to plan against the path from scratch, over random histories of
 * objects, the Node, and syncs that fail or half succeed.
 */
import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import {
  testEndpoints,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
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
import { parseIpAddress } from "../../net/ip_address.ts";
import { THIS_NODE } from "../../../tests/support/builders/address_plan.ts";

/** One thing that happens. An absent object means that it is deleted. */
type HistoryEvent =
  | { readonly kind: "service"; readonly name: string; readonly object: Service | undefined }
  | { readonly kind: "slice"; readonly name: string; readonly object: EndpointSlice | undefined }
  | { readonly kind: "endpoints"; readonly name: string; readonly object: Endpoints | undefined }
  | { readonly kind: "shared"; readonly changes: Partial<ProxyState> }
  | { readonly kind: "sync"; readonly outcome: "ok" | "nothing" | "half" };

/** Few, so that histories come back to the same objects. */
const NAMES = ["a", "b"];
const policy = fc.constantFrom("Cluster", "Local");
/** Mostly one and the same, so that Services and slices meet. */
const port = fc.oneof(
  { arbitrary: fc.constant({ name: "x", port: 80, protocol: "TCP", nodePort: 0 }), weight: 3 },
  {
    arbitrary: fc.record({
      name: fc.constantFrom("x", "y"),
      port: fc.constantFrom(80, 81),
      protocol: fc.constantFrom("TCP", "UDP"),
      nodePort: fc.constantFrom(0, 30080, 30081),
    }),
    weight: 1,
  },
);

const service = fc.constantFrom(...NAMES).chain((name) =>
  fc.record({
    kind: fc.constant("service" as const),
    name: fc.constant(name),
    object: fc.option(
      fc.record({
        type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer"),
        clusterIP: fc.constantFrom("172.30.0.1", "172.30.0.2", "172.30.0.3", "None", "nonsense"),
        ports: fc.array(port, { minLength: 1, maxLength: 3 }),
        internalTrafficPolicy: policy,
        externalTrafficPolicy: policy,
        externalIPs: fc.subarray(["192.168.99.11", "172.30.0.2", "nonsense"]),
        sessionAffinity: fc.constantFrom("None", "ClientIP"),
        creationTimestamp: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
      }).map(({ creationTimestamp, ...spec }) =>
        testService(name, spec, { metadata: { creationTimestamp } })
      ),
      { nil: undefined, freq: 4 },
    ),
  })
);

const condition = fc.constantFrom({}, {}, { ready: false }, {
  ready: false,
  serving: true,
  terminating: true,
});
const zones = fc.constantFrom("zone-a", "zone-b").map((name) => ({ forZones: [{ name }] }));
/** Hints count only where every endpoint has one, so a slice has them throughout or not at all. */
const sliceEndpoints = fc.constantFrom(fc.constant({}), zones, zones).chain((hints) =>
  fc.array(
    fc.record({
      addresses: fc.constantFrom(["10.0.0.1"], ["10.0.0.2"], ["10.0.0.3"], ["nonsense"]),
      nodeName: fc.constantFrom(THIS_NODE, "node-b"),
      conditions: condition,
      hints,
    }),
    { maxLength: 3 },
  )
);

const slice = fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom("1", "2", "6")).chain((
  [name, suffix],
) =>
  fc.record({
    kind: fc.constant("slice" as const),
    name: fc.constant(`${name}-${suffix}`),
    object: fc.option(
      fc.record({
        endpoints: sliceEndpoints,
        ports: fc.array(port, { minLength: 1, maxLength: 2 }),
        creationTimestamp: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
      }).map(({ endpoints, ports, creationTimestamp }) =>
        testEndpointSlice(name, {
          name: `${name}-${suffix}`,
          addressType: suffix === "6" ? "IPv6" : "IPv4",
          endpoints,
          ports,
          metadata: { creationTimestamp },
        })
      ),
      { nil: undefined, freq: 5 },
    ),
  })
);

const endpoints = fc.constantFrom(...NAMES).chain((name) =>
  fc.record({
    kind: fc.constant("endpoints" as const),
    name: fc.constant(name),
    object: fc.option(
      fc.subarray(["10.0.0.1", "10.0.0.9"]).map((ips) =>
        testEndpoints(name, [{
          addresses: ips.map((ip) => ({ ip })),
          ports: [{ name: "x", port: 80 }],
        }])
      ),
      { nil: undefined, freq: 5 },
    ),
  })
);

const shared = fc.oneof(
  {
    arbitrary: fc.constantFrom("zone-a", "zone-b")
      .map((zone) => ({ node: testNodeState({ zone }) })),
    weight: 2,
  },
  {
    arbitrary: fc.subarray(["172.30.0.0/16", "172.31.0.0/16"])
      .map((cidrs) => ({ serviceCidrs: cidrs.map(parseCidr) })),
    weight: 1,
  },
  {
    arbitrary: fc.subarray(["192.168.0.2", "127.0.0.1"])
      .map((addresses) => ({ interfaceAddresses: addresses.map(parseIpAddress) })),
    weight: 1,
  },
).map((changes) => ({ kind: "shared" as const, changes }));

const sync = fc.constantFrom("ok", "ok", "nothing", "half")
  .map((outcome) => ({ kind: "sync" as const, outcome }));

/** Whole histories, of few objects and many changes of each. */
const randomHistory: fc.Arbitrary<HistoryEvent[]> = fc.array(
  fc.oneof(
    { arbitrary: service, weight: 3 },
    { arbitrary: slice, weight: 4 },
    { arbitrary: endpoints, weight: 1 },
    { arbitrary: shared, weight: 2 },
    { arbitrary: sync, weight: 4 },
  ),
  // Short histories, which fast-check prefers, hardly ever come back to one object.
  { minLength: 20, maxLength: 80, size: "max" },
);

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
