import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { testEndpoint } from "../../tests/support/builders/builders.ts";
import type { Endpoint } from "./endpoint.ts";
import { EndpointSliceCache, type EndpointSource } from "./endpoint_slice_cache.ts";
import { serviceKey, servicePortKey } from "./service_port_name.ts";

const WEB = serviceKey({ namespace: "ns1", name: "web" });
const KEY = servicePortKey({ namespace: "ns1", name: "web", port: "", protocol: "TCP" });
const OLD = "2026-01-01T00:00:00Z";
const NEW = "2026-01-02T00:00:00Z";

function source(overrides: Partial<EndpointSource>, endpoints: readonly Endpoint[] = []) {
  return {
    kind: "slice",
    name: "web-1",
    createdAt: OLD,
    ports: [{ key: KEY, endpoints }],
    problems: [],
    ...overrides,
  } satisfies EndpointSource;
}

function slice(name: string, ...addresses: readonly string[]): EndpointSource {
  return source({ name }, addresses.map((address) => testEndpoint(address)));
}

/** The endpoints object of the Service. */
const FALLBACK = source({ kind: "endpoints", name: "web" }, [testEndpoint("10.0.0.9")]);

/** Drained endpoints, as text by ServicePort. */
function drain(cache: EndpointSliceCache): Readonly<Record<string, readonly string[]>> {
  const drained = [...cache.drain().values()].flatMap(({ ports }) => ports);
  return Object.fromEntries(
    drained.map(({ key, endpoints }) => [key, endpoints.map(({ address }) => address)]),
  );
}

Deno.test("EndpointSliceCache puts the slices of a Service together", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, slice("web-2", "10.0.0.2", "10.0.0.4"));
  cache.set(WEB, slice("web-1", "10.0.0.1", "10.0.0.3"));
  assertEquals(drain(cache), { [KEY]: ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"] });
  assertEquals(drain(cache), {});
});

Deno.test("EndpointSliceCache gives the list of a ServicePort's only slice itself", () => {
  const cache = new EndpointSliceCache();
  const only = slice("web-1", "10.0.0.1");
  cache.set(WEB, only);
  const [drained] = cache.drain().values();
  assertStrictEquals(drained?.ports[0]?.endpoints, only.ports[0]?.endpoints);
});

Deno.test("EndpointSliceCache treats an equal slice as no change, and a new empty one as a change", () => {
  const cache = new EndpointSliceCache();
  assertEquals(cache.set(WEB, slice("web-1")), true);
  assertEquals(cache.set(WEB, slice("web-1")), false);
  drain(cache);
  assertEquals(cache.set(WEB, slice("web-1")), false);
  assertEquals(cache.set(WEB, slice("web-1", "10.0.0.1")), true);
});

Deno.test("EndpointSliceCache compares with the slice that waits for the drain", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  drain(cache);
  assertEquals(cache.set(WEB, slice("web-1", "10.0.0.2")), true);
  assertEquals(cache.set(WEB, slice("web-1", "10.0.0.2")), false);
  assertEquals(cache.set(WEB, slice("web-1", "10.0.0.1")), true);
  assertEquals(drain(cache), { [KEY]: ["10.0.0.1"] });
});

Deno.test("EndpointSliceCache treats the deletion of an unknown slice as no change", () => {
  const cache = new EndpointSliceCache();
  assertEquals(cache.delete(WEB, { kind: "slice", name: "web-1" }), false);
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  assertEquals(cache.delete(WEB, { kind: "slice", name: "web-1" }), true);
  assertEquals(cache.delete(WEB, { kind: "slice", name: "web-1" }), false);
});

Deno.test("EndpointSliceCache says of a ServicePort without slices that it has no endpoints", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  drain(cache);
  cache.delete(WEB, { kind: "slice", name: "web-1" });
  assertEquals(drain(cache), { [KEY]: [] });
});

Deno.test("EndpointSliceCache says of a renamed port that the old one has no endpoints", () => {
  const cache = new EndpointSliceCache();
  const renamed = servicePortKey({ namespace: "ns1", name: "web", port: "http", protocol: "TCP" });
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  drain(cache);
  cache.set(WEB, source({ ports: [{ key: renamed, endpoints: [testEndpoint("10.0.0.1")] }] }));
  assertEquals(drain(cache), { [KEY]: [], [renamed]: ["10.0.0.1"] });
});

Deno.test("EndpointSliceCache forgets Services without slices", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  cache.set(WEB, source({ kind: "otherSlice", name: "web-6", ports: [] }));
  assertEquals(cache.size, 1);
  drain(cache);
  assertEquals(cache.size, 1);
  cache.delete(WEB, { kind: "slice", name: "web-1" });
  cache.delete(WEB, { kind: "otherSlice", name: "web-6" });
  drain(cache);
  assertEquals(cache.size, 0);
});

Deno.test("EndpointSliceCache reuses unchanged parts of a slice", () => {
  const cache = new EndpointSliceCache();
  const other = servicePortKey({ namespace: "ns1", name: "web", port: "b", protocol: "TCP" });
  const first = [testEndpoint("10.0.0.1"), testEndpoint("10.0.0.2")];
  const second = [testEndpoint("10.0.0.1", { ready: false }), testEndpoint("10.0.0.2")];
  const ports = [{ key: KEY, endpoints: first }, { key: other, endpoints: first }];
  cache.set(WEB, source({ ports }));
  cache.set(
    WEB,
    source({ ports: [{ key: KEY, endpoints: second }, { key: other, endpoints: [...first] }] }),
  );
  const kept = cache.get(WEB, { kind: "slice", name: "web-1" });
  assertStrictEquals(kept?.ports[0]?.endpoints[1], first[1]);
  assertEquals(kept?.ports[0]?.endpoints[0]?.ready, false);
  assertStrictEquals(kept?.ports[1]?.endpoints, first);
});

/**
 * Cases of two equal endpoints in two slices. The node tells the winner; both orders of arrival are
 * tried.
 */
const DUPLICATE_ROWS: readonly {
  readonly name: string;
  readonly winner: EndpointSource;
  readonly loser: EndpointSource;
}[] = [
  {
    name: "the newer slice",
    winner: source({ name: "web-1", createdAt: NEW }, [
      testEndpoint("10.0.0.1", { nodeName: "winner" }),
    ]),
    loser: source({ name: "web-2", createdAt: OLD }, [
      testEndpoint("10.0.0.1", { nodeName: "loser" }),
    ]),
  },
  {
    name: "the ready one of an older slice",
    winner: source({ name: "web-1", createdAt: OLD }, [
      testEndpoint("10.0.0.1", { nodeName: "winner" }),
    ]),
    loser: source({ name: "web-2", createdAt: NEW }, [
      testEndpoint("10.0.0.1", { nodeName: "loser", ready: false }),
    ]),
  },
  {
    name: "the slice with a known age",
    winner: source({ name: "web-2", createdAt: OLD }, [
      testEndpoint("10.0.0.1", { nodeName: "winner" }),
    ]),
    loser: source({ name: "web-1", createdAt: "" }, [
      testEndpoint("10.0.0.1", { nodeName: "loser" }),
    ]),
  },
  {
    name: "the slice whose name comes first, between equally old ones",
    winner: source({ name: "web-1" }, [testEndpoint("10.0.0.1", { nodeName: "winner" })]),
    loser: source({ name: "web-2" }, [testEndpoint("10.0.0.1", { nodeName: "loser" })]),
  },
];

for (const { name, winner, loser } of DUPLICATE_ROWS) {
  Deno.test(`EndpointSliceCache prefers ${name} for an endpoint named twice`, () => {
    for (const order of [[winner, loser], [loser, winner]]) {
      const cache = new EndpointSliceCache();
      for (const each of order) cache.set(WEB, each);
      const [drained] = cache.drain().values();
      assertEquals(
        drained?.ports[0]?.endpoints.map(({ nodeName }) => nodeName),
        ["winner"],
      );
    }
  });
}

Deno.test("EndpointSliceCache falls back to the other slice's endpoint when the winner is removed", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, source({ name: "web-1", createdAt: NEW }, [testEndpoint("10.0.0.1")]));
  cache.set(WEB, source({ name: "web-2" }, [testEndpoint("10.0.0.1", { ready: false })]));
  drain(cache);
  cache.delete(WEB, { kind: "slice", name: "web-1" });
  const [drained] = cache.drain().values();
  assertEquals(drained?.ports[0]?.endpoints.map(({ ready }) => ready), [false]);
});

Deno.test("EndpointSliceCache uses the Endpoints object while there is no slice", () => {
  const cache = new EndpointSliceCache();
  assertEquals(cache.set(WEB, FALLBACK), true);
  assertEquals(drain(cache), { [KEY]: ["10.0.0.9"] });
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  assertEquals(drain(cache), { [KEY]: ["10.0.0.1"] });
});

Deno.test("EndpointSliceCache uses the Endpoints object again in the sync in which the last slice is removed", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  assertEquals(cache.set(WEB, FALLBACK), false);
  drain(cache);
  assertEquals(cache.delete(WEB, { kind: "slice", name: "web-1" }), true);
  assertEquals(drain(cache), { [KEY]: ["10.0.0.9"] });
});

Deno.test("EndpointSliceCache ignores the Endpoints object next to a slice of another family", () => {
  const cache = new EndpointSliceCache();
  const other = source({ kind: "otherSlice", name: "web-6", ports: [] });
  assertEquals(cache.set(WEB, other), false);
  assertEquals(cache.set(WEB, FALLBACK), false);
  assertEquals(drain(cache), {});
  assertEquals(cache.delete(WEB, other), true);
  assertEquals(drain(cache), { [KEY]: ["10.0.0.9"] });
  assertEquals(cache.set(WEB, other), true);
  assertEquals(drain(cache), { [KEY]: [] });
});

Deno.test("EndpointSliceCache distinguishes a slice from an Endpoints object of the same name", () => {
  const cache = new EndpointSliceCache();
  cache.set(WEB, FALLBACK);
  cache.set(WEB, slice("web", "10.0.0.1"));
  cache.delete(WEB, { kind: "slice", name: "web" });
  assertEquals(drain(cache), { [KEY]: ["10.0.0.9"] });
});

Deno.test("EndpointSliceCache reports the problems of objects in effect, each once", () => {
  const problem = { kind: "Endpoints", object: "ns1/web", path: "x", value: "", message: "m" };
  const cache = new EndpointSliceCache();
  const problems = () => [...cache.drain().values()].flatMap((service) => service.problems);
  cache.set(WEB, slice("web-1", "10.0.0.1"));
  cache.set(WEB, { ...FALLBACK, problems: [problem] });
  assertEquals(problems(), []);
  cache.delete(WEB, { kind: "slice", name: "web-1" });
  assertEquals(problems(), [problem]);
  cache.set(WEB, { ...FALLBACK, ports: [], problems: [problem] });
  assertEquals(problems(), []);
});

Deno.test("EndpointSliceCache looks at each slice of a Service a few times, however many there are", () => {
  const count = 2000;
  let reads = 0;
  const slices = Array.from({ length: count }, (_, index) => {
    const made = slice(`web-${index}`, `10.0.${index >> 8}.${index & 255}`);
    return Object.defineProperty({ ...made }, "kind", {
      enumerable: true,
      get: () => (reads++, "slice"),
    });
  });
  const cache = new EndpointSliceCache();
  for (const each of slices) cache.set(WEB, each);
  assertEquals(drain(cache)[KEY]?.length, count);
  // A relist, which leaves nothing to drain, then every slice goes.
  for (const each of slices) cache.set(WEB, { ...each });
  assertEquals([cache.undrained, cache.size], [0, 1]);
  for (const each of slices) cache.delete(WEB, each);
  assertEquals(drain(cache), { [KEY]: [] });
  assert(reads < 100 * count, `${reads} reads of ${count} slices`);
});

Deno.test("EndpointSliceCache names the sources that make a difference", () => {
  const cache = new EndpointSliceCache();
  const other = source({ kind: "otherSlice", name: "web-6", ports: [] });
  const steps = [
    cache.set(WEB, other),
    cache.set(WEB, FALLBACK),
    cache.delete(WEB, other),
    cache.set(WEB, other),
    cache.set(WEB, slice("web-1", "10.0.0.1")),
    cache.delete(WEB, FALLBACK),
    cache.set(WEB, { ...other, name: "web-1" }),
    cache.delete(WEB, { kind: "slice", name: "web-1" }),
    cache.delete(WEB, other),
  ];
  assertEquals(steps, [false, false, true, true, true, false, true, false, false]);
});
