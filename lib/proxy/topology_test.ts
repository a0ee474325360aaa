/** What each policy selects is held by `tests/packet_flow`. */
import { assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import { testEndpoint } from "../../tests/support/builders/builders.ts";
import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { TrafficPolicy } from "./service_port.ts";
import { categorizeEndpoints, type NodeTopology } from "./service_plan.ts";

const NODE: NodeTopology = { name: "node-a", zone: "zone-a" };

const READY = { ready: true, serving: true, terminating: false };
const DRAINING = { ready: false, serving: true, terminating: true };
const ENDING = { ready: false, serving: false, terminating: true };
/** Not yet ready, and not on its way out. */
const SERVING = { ready: false, serving: true, terminating: false };
const UNREADY = { ready: false, serving: false, terminating: false };

/** An endpoint that is named by the last number of its address. */
function local(number: number, overrides: Partial<Endpoint> = READY): Endpoint {
  return testEndpoint(`10.0.0.${number}`, { ...overrides, isLocal: true });
}

function remote(number: number, overrides: Partial<Endpoint> = READY): Endpoint {
  return testEndpoint(`10.0.0.${number}`, { ...overrides, isLocal: false });
}

function policies(internal: TrafficPolicy, external: TrafficPolicy, accessible: boolean) {
  return {
    internalTrafficPolicy: internal,
    externalTrafficPolicy: external,
    externallyAccessible: accessible,
  };
}

Deno.test("categorizeEndpoints() gives the list itself if all of it is meant", () => {
  const endpoints = [local(1), local(2)];
  const found = categorizeEndpoints(endpoints, policies("Local", "Local", true), NODE);
  assertStrictEquals(found.cluster, endpoints);
  assertStrictEquals(found.local, endpoints);
  assertStrictEquals(found.reachable, endpoints);
});

Deno.test("categorizeEndpoints() keeps its lists sorted and within the input, and hasAny correct", () => {
  const hint = fc.option(fc.subarray(["zone-a", "zone-b"], { minLength: 1 }), { nil: undefined });
  const endpoint = fc.record({
    number: fc.integer({ min: 1, max: 30 }),
    isLocal: fc.boolean(),
    state: fc.constantFrom(READY, DRAINING, ENDING, SERVING, UNREADY),
    zoneHints: hint,
  }).map(({ number, isLocal, state, zoneHints }) => {
    const overrides = { ...state, ...(zoneHints && { zoneHints }) };
    return isLocal ? local(number, overrides) : remote(number, overrides);
  });
  const list = fc.uniqueArray(endpoint, { selector: ({ key }) => key })
    .map((endpoints) => endpoints.sort(compareEndpoints));
  const policy = fc.constantFrom<TrafficPolicy>("Cluster", "Local");
  fc.assert(
    fc.property(list, policy, policy, fc.boolean(), (endpoints, internal, external, accessible) => {
      const found = categorizeEndpoints(endpoints, policies(internal, external, accessible), NODE);
      assertEquals(found.cluster !== undefined, internal === "Cluster" || accessible);
      const usesLocal = internal === "Local" || (external === "Local" && accessible);
      assertEquals(found.local !== undefined, usesLocal);
      const union = new Set([...found.cluster ?? [], ...found.local ?? []]);
      assertEquals(found.reachable, endpoints.filter((each) => union.has(each)));
      const usable = endpoints.some(({ ready, serving, terminating }) =>
        ready || (serving && terminating)
      );
      assertEquals(found.hasAny, usable);
      // Only policy Local may come out empty while there is an endpoint: that is what DROP rests on.
      if (usable && found.cluster !== undefined) assertEquals(found.cluster.length > 0, true);
    }),
  );
});
