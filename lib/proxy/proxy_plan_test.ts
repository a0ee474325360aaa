import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import {
  testEndpoint,
  testNodeState,
  testService,
  testServicePort,
} from "../../tests/support/builders/builders.ts";
import { planProxy } from "../../tests/support/builders/plan_proxy.ts";
import { updatePlan } from "../../tests/support/builders/update_plan.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import type { Endpoint } from "./endpoint.ts";
import {
  createProxyPlan,
  mergePlanChanges,
  type MutableProxyPlan,
  type PlanChanges,
  type PlanOptions,
  updatePlanInSlices,
} from "./proxy_plan.ts";
import { applyChanges, createProxyState, type MutableProxyState } from "./proxy_state.ts";
import { planService, type ServicePlan } from "./service_plan.ts";
import { type ServicePort, servicePortsFromService } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";

const OPTIONS: PlanOptions = {
  family: "IPv4",
  localTraffic: { kind: "none" },
  nodePortAddresses: { kind: "all" },
  masqueradeAll: false,
};

/** Each with a cluster IP of its own, by the number in its name. */
function servicePort(name: string): ServicePort {
  const number = Number(/\d*$/.exec(name)?.[0]);
  const clusterIP = `172.30.${number >> 8}.${number & 255}`;
  const [first] = servicePortsFromService(testService(name, { clusterIP }), OPTIONS).ports;
  assert(first);
  return first;
}

/** State and plan of this number of Services with one endpoint each, as after a first sync. */
function started(count: number): { state: MutableProxyState; plan: MutableProxyPlan } {
  const state = createProxyState(testNodeState());
  const plan = createProxyPlan(OPTIONS);
  const ports = Array.from({ length: count }, (_, index) => servicePort(`svc-${index}`));
  const dirty = applyChanges(state, {
    services: { upserted: new Map(ports.map((port) => [port.key, port])), removed: new Set() },
    endpoints: { endpoints: new Map(ports.map(({ key }) => [key, [testEndpoint("10.0.0.1")]])) },
  });
  updatePlan(plan, state, dirty, OPTIONS);
  return { state, plan };
}

function setEndpoints(state: MutableProxyState, key: ServicePortKey, list: readonly Endpoint[]) {
  return applyChanges(state, { endpoints: { endpoints: new Map([[key, list]]) } });
}

Deno.test("updatePlan() names every key the first time", () => {
  const state = createProxyState(testNodeState());
  const port = servicePort("web");
  const services = { upserted: new Map([[port.key, port]]), removed: new Set<never>() };
  const plan = createProxyPlan(OPTIONS);
  const changes = updatePlan(plan, state, applyChanges(state, { services }), OPTIONS);
  assertEquals(changes, {
    upserted: new Set([port.key]),
    removed: new Map(),
    shared: true,
    everything: true,
  });
  assertEquals([...plan.services.keys()], [port.key]);
});

Deno.test("updatePlan() names only changed ServicePorts", () => {
  const { state, plan } = started(3);
  const [key] = [...plan.services.keys()];
  assert(key);
  const untouched = [...plan.services.values()].slice(1);
  const dirty = setEndpoints(state, key, [testEndpoint("10.0.0.2")]);
  const changes = updatePlan(plan, state, dirty, OPTIONS);
  assertEquals(changes, {
    upserted: new Set([key]),
    removed: new Map(),
    shared: false,
    everything: false,
  });
  for (const old of untouched) assertStrictEquals(plan.services.get(old.key), old);
});

Deno.test("updatePlan() keeps the identity of a plan that comes out equal", () => {
  const { state, plan } = started(1);
  const [[key, before] = []] = [...plan.services];
  assert(key);
  const changes = updatePlan(
    plan,
    state,
    { keys: new Set([key]), shared: false, everything: false },
    OPTIONS,
  );
  assertEquals(changes.upserted.size, 0);
  assertStrictEquals(plan.services.get(key), before);
});

Deno.test("updatePlan() returns the last plan of removed ServicePorts", () => {
  const { state, plan } = started(2);
  const [[key, before] = []] = [...plan.services];
  assert(key && before);
  const services = { upserted: new Map(), removed: new Set([key]) };
  const changes = updatePlan(plan, state, applyChanges(state, { services }), OPTIONS);
  assertEquals([...changes.removed], [[key, before]]);
  assertEquals([changes.upserted.size, plan.services.size], [0, 1]);
});

Deno.test("updatePlan() ignores endpoints of no Service", () => {
  const { state, plan } = started(1);
  const dirty = setEndpoints(state, testServicePort().key, [testEndpoint("10.0.0.2")]);
  assertEquals(dirty.keys.size, 1);
  const changes = updatePlan(plan, state, dirty, OPTIONS);
  assertEquals([changes.upserted.size, changes.removed.size], [0, 0]);
});

Deno.test("updatePlan() sorts the shared part and says whether it differs", () => {
  const { state, plan } = started(1);
  const changes = (cidrs: readonly string[]) =>
    updatePlan(
      plan,
      state,
      applyChanges(state, {
        serviceCidrs: cidrs.map(parseCidr),
        interfaceAddresses: ["192.168.1.2", "192.168.0.2"].map(parseIpAddress),
      }),
      OPTIONS,
    );
  assertEquals(changes(["172.31.0.0/16", "172.30.0.0/16"]).shared, true);
  assertEquals<unknown>(plan.shared, {
    nodePortRanges: OPTIONS.nodePortAddresses,
    nodeIp: state.node.addresses[0],
    nodePortAddresses: ["192.168.0.2", "192.168.1.2"],
    interfaceAddresses: ["192.168.1.2", "192.168.0.2"],
    serviceCidrs: ["172.30.0.0/16", "172.31.0.0/16"],
    localTraffic: { kind: "none" },
    node: { name: state.node.name, zone: state.node.zone },
  });
  assertEquals(changes(["172.30.0.0/16", "172.31.0.0/16"]).shared, false);
});

Deno.test("updatePlan() plans ServicePorts with source ranges again when the node IP changes", () => {
  const { state, plan } = started(3);
  const [key, servicePort] = [...state.services][1]!;
  const loadBalancerSourceRanges = [parseCidr("192.168.7.0/24")];
  const services = { upserted: new Map([[key, { ...servicePort, loadBalancerSourceRanges }]]) };
  updatePlan(
    plan,
    state,
    applyChanges(state, { services: { ...services, removed: new Set() } }),
    OPTIONS,
  );
  assertEquals(plan.services.get(key)?.admitsNode, undefined);
  const node = testNodeState({ addresses: [parseIpAddress("192.168.7.2")] });
  const changes = updatePlan(plan, state, applyChanges(state, { node }), OPTIONS);
  assertEquals([[...changes.upserted], changes.everything], [[key], false]);
  assertEquals(plan.services.get(key)?.admitsNode, true);
});

Deno.test("updatePlan() plans everything from scratch when the zone changes", () => {
  const { state, plan } = started(3);
  const dirty = applyChanges(state, { node: testNodeState({ zone: "zone-b" }) });
  const changes = updatePlan(plan, state, dirty, OPTIONS);
  assertEquals([changes.upserted.size, changes.everything, changes.shared], [3, true, true]);
  assertEquals(plan.shared.node.zone, "zone-b");
});

/** A map that fails the test when it is walked. */
class UnwalkedMap<K, V> extends Map<K, V> {
  closed = false;

  override keys() {
    return this.#walk(super.keys());
  }
  override values() {
    return this.#walk(super.values());
  }
  override entries() {
    return this.#walk(super.entries());
  }
  override [Symbol.iterator]() {
    return this.entries();
  }
  override forEach(callback: (value: V, key: K, map: Map<K, V>) => void) {
    for (const [key, value] of this) callback(value, key, this);
  }

  #walk<T>(iterator: T): T {
    if (this.closed) throw new Error("A map of all Services was walked");
    return iterator;
  }
}

Deno.test("applyChanges() and updatePlan() never walk all Services for one change", () => {
  const source = started(1000);
  const maps = [
    new UnwalkedMap(source.state.services),
    new UnwalkedMap(source.state.endpoints),
    new UnwalkedMap(source.plan.services),
  ] as const;
  const state: MutableProxyState = { ...source.state, services: maps[0], endpoints: maps[1] };
  const plan: MutableProxyPlan = { ...source.plan, services: maps[2] };
  for (const map of maps) map.closed = true;
  const { key } = servicePort("svc-500");
  const dirty = setEndpoints(state, key, [testEndpoint("10.0.0.2")]);
  assertEquals(updatePlan(plan, state, dirty, OPTIONS).upserted, new Set([key]));
});

Deno.test("updatePlanInSlices() pauses every 256 ServicePorts, with the same result", async () => {
  const { state, plan } = started(1000);
  const sliced = createProxyPlan(OPTIONS);
  const sizes: number[] = [];
  const pause = () => {
    sizes.push(sliced.services.size);
    return undefined;
  };
  const dirty = { keys: new Set<never>(), shared: true, everything: true };
  const changes = await updatePlanInSlices(sliced, state, dirty, { ...OPTIONS, pause });
  assertEquals(sizes, [255, 511, 767]);
  assertEquals(changes.upserted.size, 1000);
  assertEquals(sliced, plan);
});

Deno.test("updatePlanInSlices() waits for the pause", async () => {
  const { state } = started(300);
  const sliced = createProxyPlan(OPTIONS);
  const gate = Promise.withResolvers<void>();
  const dirty = { keys: new Set<never>(), shared: true, everything: true };
  const update = updatePlanInSlices(sliced, state, dirty, {
    ...OPTIONS,
    pause: () => gate.promise,
  });
  await Promise.resolve();
  assertEquals(sliced.services.size, 255);
  gate.resolve();
  await update;
  assertEquals(sliced.services.size, 300);
});

Deno.test("planProxy() plans a state from scratch", () => {
  const { state, plan } = started(3);
  assertEquals<unknown>(planProxy(state, OPTIONS), plan);
});

const KEY = testServicePort().key;

/** Two plans of one ServicePort, distinguished by the affinity timeout. */
function planWith(affinityTimeoutSeconds: number): ServicePlan {
  return planService(testServicePort({ affinityTimeoutSeconds }), [], {
    node: testNodeState(),
    options: OPTIONS,
  });
}

const FIRST = planWith(1);
const SECOND = planWith(2);

function changes(upserted: boolean, removed?: ServicePlan): PlanChanges {
  return {
    upserted: new Set(upserted ? [KEY] : []),
    removed: new Map(removed ? [[KEY, removed]] : []),
    shared: false,
    everything: false,
  };
}

const MERGE_ROWS: readonly {
  readonly name: string;
  readonly earlier: PlanChanges;
  readonly later: PlanChanges;
  readonly expect: PlanChanges;
}[] = [
  {
    name: "keeps changes that only the earlier one has",
    earlier: changes(true),
    later: changes(false),
    expect: changes(true),
  },
  {
    name: "keeps changes that only the later one has",
    earlier: changes(false),
    later: changes(true),
    expect: changes(true),
  },
  {
    name: "drops a ServicePort that was added and then removed",
    earlier: changes(true),
    later: changes(false, SECOND),
    expect: changes(false, SECOND),
  },
  {
    name: "keeps the old plan of a ServicePort that was removed and then added again",
    earlier: changes(false, FIRST),
    later: changes(true),
    expect: changes(true, FIRST),
  },
  {
    name: "keeps the plan of the last good sync for a ServicePort that was removed twice",
    earlier: changes(true, FIRST),
    later: changes(false, SECOND),
    expect: changes(false, FIRST),
  },
  {
    name: "keeps 'shared' and 'everything'",
    earlier: { ...changes(true), shared: true, everything: true },
    later: changes(false),
    expect: { ...changes(true), shared: true, everything: true },
  },
  {
    name: "takes over 'shared' and 'everything'",
    earlier: changes(false),
    later: { ...changes(true), shared: true, everything: true },
    expect: { ...changes(true), shared: true, everything: true },
  },
];

for (const { name, earlier, later, expect } of MERGE_ROWS) {
  Deno.test(`mergePlanChanges() ${name}`, () => {
    assertEquals(mergePlanChanges(earlier, later), expect);
  });
}
