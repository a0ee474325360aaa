import { assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import { testEndpoint } from "../../tests/support/builders/builders.ts";
import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { TrafficPolicy } from "./service_port.ts";
import {
  categorizeEndpoints,
  exclusionOf,
  type ExclusionReason,
  type NodeTopology,
  selectEndpoints,
} from "./topology.ts";

const NODE: NodeTopology = { name: "node-a", zone: "zone-a" };

const READY = { ready: true, serving: true, terminating: false };
const DRAINING = { ready: false, serving: true, terminating: true };
const ENDING = { ready: false, serving: false, terminating: true };
const UNREADY = { ready: false, serving: false, terminating: false };

/** An endpoint that is named by the last number of its address. */
function local(number: number, overrides: Partial<Endpoint> = READY): Endpoint {
  return testEndpoint(`10.0.0.${number}`, { ...overrides, isLocal: true });
}

function remote(number: number, overrides: Partial<Endpoint> = READY): Endpoint {
  return testEndpoint(`10.0.0.${number}`, { ...overrides, isLocal: false });
}

function zone(...names: readonly string[]): Partial<Endpoint> {
  return { ...READY, zoneHints: names };
}

function policies(internal: TrafficPolicy, external: TrafficPolicy, accessible: boolean) {
  return {
    internalTrafficPolicy: internal,
    externalTrafficPolicy: external,
    externallyAccessible: accessible,
  };
}

function numbers(endpoints: readonly Endpoint[] | undefined): readonly number[] | undefined {
  return endpoints?.map(({ address }) => Number(address.slice(address.lastIndexOf(".") + 1)));
}

/** Conditions under which each list is computed (control-plane 5.1). */
const LIST_ROWS: readonly (readonly [
  internal: TrafficPolicy,
  external: TrafficPolicy,
  accessible: boolean,
  usesCluster: boolean,
  usesLocal: boolean,
])[] = [
  ["Cluster", "Cluster", false, true, false],
  ["Cluster", "Local", false, true, false],
  ["Cluster", "Cluster", true, true, false],
  ["Cluster", "Local", true, true, true],
  ["Local", "Cluster", false, false, true],
  ["Local", "Local", false, false, true],
  ["Local", "Cluster", true, true, true],
  ["Local", "Local", true, true, true],
];

for (const [internal, external, accessible, usesCluster, usesLocal] of LIST_ROWS) {
  const name = `internal ${internal}, external ${external}, accessible ${accessible}`;
  Deno.test(`categorizeEndpoints() computes the lists that are asked for: ${name}`, () => {
    const endpoints = [local(1), remote(2)];
    const found = categorizeEndpoints(endpoints, policies(internal, external, accessible), NODE);
    assertEquals(numbers(found.cluster), usesCluster ? [1, 2] : undefined);
    assertEquals(numbers(found.local), usesLocal ? [1] : undefined);
    assertEquals(found.hasAny, true);
    assertEquals(numbers(found.reachable), usesCluster ? [1, 2] : [1]);
  });

  Deno.test(`categorizeEndpoints() has nothing without endpoints: ${name}`, () => {
    const found = categorizeEndpoints([], policies(internal, external, accessible), NODE);
    assertEquals([...found.cluster ?? [], ...found.local ?? [], ...found.reachable], []);
    assertEquals(found.hasAny, false);
  });
}

/** Decision examples (control-plane 5.6) and the rules of 5.2 to 5.4. */
const ROWS: readonly {
  readonly name: string;
  readonly endpoints: readonly Endpoint[];
  readonly policies: ReturnType<typeof policies>;
  readonly node?: NodeTopology;
  readonly cluster: readonly number[] | undefined;
  readonly local: readonly number[] | undefined;
  readonly hasAny?: boolean;
  /** The reachable endpoints, if they are not the longer one of the two lists. */
  readonly reachable?: readonly number[];
}[] = [
  {
    name: "uses all ready endpoints for policy Cluster",
    endpoints: [local(1), remote(2)],
    policies: policies("Cluster", "Cluster", true),
    cluster: [1, 2],
    local: undefined,
  },
  {
    name: "uses ready local endpoints for policy Local",
    endpoints: [local(1), remote(2)],
    policies: policies("Local", "Cluster", false),
    cluster: undefined,
    local: [1],
  },
  {
    name: "has none on this node, but some, with internal policy Local",
    endpoints: [remote(1), remote(2)],
    policies: policies("Local", "Cluster", false),
    cluster: undefined,
    local: [],
  },
  {
    name: "has none on this node, but some, with both policies Local",
    endpoints: [remote(1), remote(2)],
    policies: policies("Local", "Local", true),
    cluster: [1, 2],
    local: [],
  },
  {
    name: "falls back to serving-terminating endpoints",
    endpoints: [local(1, DRAINING), remote(2, DRAINING)],
    policies: policies("Cluster", "Cluster", true),
    cluster: [1, 2],
    local: undefined,
  },
  {
    name: "falls back in the local list by itself",
    endpoints: [remote(1), local(2, ENDING), local(3, DRAINING), remote(4, DRAINING)],
    policies: policies("Cluster", "Local", true),
    cluster: [1],
    local: [3],
    reachable: [1, 3],
  },
  {
    name: "has draining endpoints elsewhere, none here",
    endpoints: [remote(1, DRAINING), remote(2, DRAINING)],
    policies: policies("Local", "Local", true),
    cluster: [1, 2],
    local: [],
  },
  {
    name: "has none if none is ready",
    endpoints: [local(1, UNREADY), remote(2, UNREADY), remote(3, ENDING)],
    policies: policies("Local", "Local", true),
    cluster: [],
    local: [],
    hasAny: false,
  },
  {
    name: "never uses serving endpoints that are neither ready nor terminating",
    endpoints: [local(1, { ...UNREADY, serving: true })],
    policies: policies("Cluster", "Local", true),
    cluster: [],
    local: [],
    hasAny: false,
  },
  {
    name: "prefers ready endpoints to draining ones",
    endpoints: [local(1, DRAINING), remote(2)],
    policies: policies("Cluster", "Cluster", false),
    cluster: [2],
    local: undefined,
  },
  {
    name: "uses hints in the cluster list, never in the local one",
    endpoints: [
      local(1, zone("zone-a")),
      local(2, zone("zone-b")),
      remote(3, zone("zone-a")),
      remote(4, zone("zone-b")),
    ],
    policies: policies("Cluster", "Local", true),
    cluster: [1, 3],
    local: [1, 2],
    reachable: [1, 2, 3],
  },
  {
    name: "ignores hints if only an unready endpoint is hinted for this zone",
    endpoints: [
      remote(1, { ...zone("zone-a"), ready: false }),
      remote(2, zone("zone-b")),
      remote(3, zone("zone-c")),
    ],
    policies: policies("Cluster", "Cluster", false),
    cluster: [2, 3],
    local: undefined,
  },
  {
    name: "ignores hints if one ready endpoint has none",
    endpoints: [remote(1, zone("zone-a")), remote(2), remote(3, zone("zone-b"))],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1, 2, 3],
    local: undefined,
  },
  {
    name: "uses hints although an unready endpoint has none",
    endpoints: [remote(1, zone("zone-a")), remote(2, UNREADY), remote(3, zone("zone-b"))],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1],
    local: undefined,
  },
  {
    name: "uses an endpoint hinted for several zones",
    endpoints: [remote(1, zone("zone-b", "zone-a")), remote(2, zone("zone-b"))],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1],
    local: undefined,
  },
  {
    name: "ignores zone hints without a zone label",
    endpoints: [remote(1, zone("zone-a")), remote(2, zone("zone-b"))],
    policies: policies("Cluster", "Cluster", false),
    node: { name: "node-a" },
    cluster: [1, 2],
    local: undefined,
  },
  {
    name: "prefers node hints to zone hints",
    endpoints: [
      remote(1, { ...zone("zone-a"), nodeHints: ["node-a"] }),
      remote(2, { ...zone("zone-a"), nodeHints: ["node-b"] }),
    ],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1],
    local: undefined,
  },
  {
    name: "falls back to zone hints if no node hint is for this node",
    endpoints: [
      remote(1, { ...zone("zone-a"), nodeHints: ["node-b"] }),
      remote(2, { ...zone("zone-b"), nodeHints: ["node-c"] }),
    ],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1],
    local: undefined,
  },
  {
    name: "falls back to zone hints if one endpoint has no node hint",
    endpoints: [
      remote(1, { ...zone("zone-b"), nodeHints: ["node-a"] }),
      remote(2, zone("zone-a")),
    ],
    policies: policies("Cluster", "Cluster", false),
    cluster: [2],
    local: undefined,
  },
  {
    name: "falls back to draining endpoints without hints",
    endpoints: [
      remote(1, { ...DRAINING, zoneHints: ["zone-a"] }),
      remote(2, { ...DRAINING, zoneHints: ["zone-b"] }),
    ],
    policies: policies("Cluster", "Cluster", false),
    cluster: [1, 2],
    local: undefined,
  },
  {
    name: "has no local list for external policy Local that nothing leads to",
    endpoints: [local(1), remote(2)],
    policies: policies("Cluster", "Local", false),
    cluster: [1, 2],
    local: undefined,
  },
];

for (const row of ROWS) {
  Deno.test(`categorizeEndpoints() ${row.name}`, () => {
    const found = categorizeEndpoints(row.endpoints, row.policies, row.node ?? NODE);
    assertEquals(numbers(found.cluster), row.cluster);
    assertEquals(numbers(found.local), row.local);
    assertEquals(found.hasAny, row.hasAny ?? true);
    assertEquals(numbers(found.reachable), row.reachable ?? row.cluster ?? row.local);
  });
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
    state: fc.constantFrom(READY, DRAINING, ENDING, UNREADY),
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

/** The reason why each endpoint is left out, in the order of the endpoints. */
const EXCLUSION_ROWS: readonly (readonly [
  name: string,
  policy: TrafficPolicy,
  endpoints: readonly Endpoint[],
  expected: readonly (ExclusionReason | undefined)[],
])[] = [
  ["Cluster", "Cluster", [local(1), remote(2, UNREADY)], [undefined, "not-ready"]],
  ["ready next to ending", "Cluster", [local(1), remote(2, DRAINING)], [undefined, "not-ready"]],
  ["fallback", "Cluster", [local(1, DRAINING), remote(2, UNREADY)], [undefined, "not-serving"]],
  ["Local", "Local", [local(1), local(2, UNREADY), remote(3)], [
    undefined,
    "not-ready",
    "other-node",
  ]],
  ["Local, fallback", "Local", [local(1, DRAINING), local(2, ENDING), remote(3)], [
    undefined,
    "not-serving",
    "other-node",
  ]],
  ["zone hints", "Cluster", [local(1, zone("zone-a")), remote(2, zone("zone-b"))], [
    undefined,
    "zone-hint",
  ]],
  ["node hints", "Cluster", [
    local(1, { ...READY, nodeHints: ["node-a"] }),
    remote(2, { ...READY, nodeHints: ["node-b"] }),
    remote(3, UNREADY),
  ], [undefined, "node-hint", "not-ready"]],
];

for (const [name, policy, endpoints, expected] of EXCLUSION_ROWS) {
  Deno.test(`exclusionOf() returns the reason why an endpoint is left out: ${name}`, () => {
    const selection = selectEndpoints(endpoints, policy, NODE);
    assertEquals(endpoints.map((endpoint) => exclusionOf(endpoint, selection)), expected);
  });
}

Deno.test("exclusionOf() has a reason for exactly the endpoints that are not selected", () => {
  const hints = fc.constantFrom(undefined, ["zone-a"], ["zone-b"], ["node-a"]);
  const drawn = fc.record({
    isLocal: fc.boolean(),
    ready: fc.boolean(),
    serving: fc.boolean(),
    terminating: fc.boolean(),
    zoneHints: hints,
    nodeHints: hints,
  });
  fc.assert(
    fc.property(
      fc.array(drawn, { maxLength: 5 }),
      fc.constantFrom<TrafficPolicy>("Cluster", "Local"),
      (list, policy) => {
        const endpoints = list.map(({ zoneHints, nodeHints, ...rest }, index) =>
          testEndpoint(`10.0.0.${index + 1}`, {
            ...rest,
            ...(zoneHints && { zoneHints }),
            ...(nodeHints && { nodeHints }),
          })
        );
        const selection = selectEndpoints(endpoints, policy, NODE);
        assertEquals(
          endpoints.filter((endpoint) => exclusionOf(endpoint, selection) === undefined),
          [...selection.endpoints],
        );
      },
    ),
  );
});
