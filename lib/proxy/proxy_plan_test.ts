import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { testEndpoint, testNodeState, testService } from "../../tests/support/builders/builders.ts";
import { PlannedState, updatePlan } from "../../tests/support/builders/update_plan.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import type { PlanOptions } from "./proxy_plan.ts";
import { type ServicePort, servicePortsFromService } from "./service_port.ts";

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

/** This number of Services with one endpoint each, as after a first sync. */
function started(count: number): PlannedState {
  const planned = new PlannedState(OPTIONS);
  const ports = Array.from({ length: count }, (_, index) => servicePort(`svc-${index}`));
  planned.change({ ports, endpoints: ports.map(({ key }) => [key, [testEndpoint("10.0.0.1")]]) });
  return planned;
}

Deno.test("updatePlan() names every key the first time, and then only changed ServicePorts", () => {
  const planned = new PlannedState(OPTIONS);
  const [one, other] = [servicePort("web1"), servicePort("web2")];
  assertEquals(planned.change({ ports: [one, other] }), {
    upserted: new Set([one.key, other.key]),
    removed: new Map(),
    shared: true,
    everything: true,
  });
  const untouched = planned.plan.services.get(other.key);
  assertEquals(planned.change({ endpoints: [[one.key, [testEndpoint("10.0.0.2")]]] }), {
    upserted: new Set([one.key]),
    removed: new Map(),
    shared: false,
    everything: false,
  });
  assertStrictEquals(planned.plan.services.get(other.key), untouched);
});

Deno.test("updatePlan() sorts the shared part and says whether it differs", () => {
  const planned = started(1);
  const interfaceAddresses = ["192.168.1.2", "192.168.0.2"].map(parseIpAddress);
  const change = (...cidrs: readonly string[]) =>
    planned.change({ serviceCidrs: cidrs.map(parseCidr), interfaceAddresses }).shared;
  assertEquals(change("172.31.0.0/16", "172.30.0.0/16"), true);
  const { node } = planned.state;
  assertEquals<unknown>(planned.plan.shared, {
    nodePortRanges: OPTIONS.nodePortAddresses,
    nodeIp: node.addresses[0],
    nodePortAddresses: ["192.168.0.2", "192.168.1.2"],
    interfaceAddresses,
    serviceCidrs: ["172.30.0.0/16", "172.31.0.0/16"],
    localTraffic: { kind: "none" },
    node: { name: node.name, zone: node.zone },
  });
  assertEquals(change("172.30.0.0/16", "172.31.0.0/16"), false);
});

Deno.test("updatePlan() plans ServicePorts with source ranges again when the node IP changes", () => {
  const planned = started(3);
  const [key, servicePort] = [...planned.state.services][1]!;
  const loadBalancerSourceRanges = [parseCidr("192.168.7.0/24")];
  planned.change({ ports: [{ ...servicePort, loadBalancerSourceRanges }] });
  assertEquals(planned.plan.services.get(key)?.admitsNode, undefined);
  const node = testNodeState({ addresses: [parseIpAddress("192.168.7.2")] });
  const changes = planned.change({ node });
  assertEquals([[...changes.upserted], changes.everything], [[key], false]);
  assertEquals(planned.plan.services.get(key)?.admitsNode, true);
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

Deno.test("updatePlan() never walks all Services for one change", () => {
  const { state, plan } = started(1000);
  const maps = [
    new UnwalkedMap(state.services),
    new UnwalkedMap(state.endpoints),
    new UnwalkedMap(plan.services),
  ] as const;
  const { key } = servicePort("svc-500");
  maps[1].set(key, [testEndpoint("10.0.0.2")]);
  for (const map of maps) map.closed = true;
  const dirty = { keys: new Set([key]), shared: false, everything: false };
  const unwalked = { ...state, services: maps[0], endpoints: maps[1] };
  const changes = updatePlan({ ...plan, services: maps[2] }, unwalked, dirty, OPTIONS);
  assertEquals(changes.upserted, new Set([key]));
});
