import { assert, assertEquals } from "@std/assert";
import { ADDRESSES, THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testEndpoints, testEndpointSlice } from "../../tests/support/builders/builders.ts";
import type { EndpointSlice } from "../api/kinds/endpoint_slice.ts";
import type { Endpoint } from "./endpoint.ts";
import { EndpointTracker } from "./endpoint_tracker.ts";

const STARTED = Date.UTC(2026, 0, 2);
const TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time";

function createTracker(slices: readonly EndpointSlice[] = []): EndpointTracker {
  const tracker = new EndpointTracker("IPv4", THIS_NODE, STARTED);
  for (const slice of slices) tracker.updateSlice(undefined, slice);
  tracker.drain();
  return tracker;
}

/** A slice of Service `web`, last changed this number of seconds after the tracker's start. */
function triggered(seconds: number, ...endpoints: readonly string[]): EndpointSlice {
  const time = new Date(STARTED + seconds * 1000).toISOString();
  return testEndpointSlice("web", {
    endpoints,
    metadata: { annotations: { [TRIGGER_TIME]: time } },
  });
}

/** Drains, and returns the endpoints of the ServicePorts that it names, as text. */
function drain(tracker: EndpointTracker): Readonly<Record<string, readonly string[]>> {
  const { keys } = tracker.drain();
  return Object.fromEntries(
    keys.map((key) => [key, (tracker.endpoints.get(key) ?? []).map((each) => String(each.key))]),
  );
}

const WEB = testEndpointSlice("web", { endpoints: ["10.180.0.1"] });

Deno.test("EndpointTracker.drain() gives all endpoints of the Services that changed", () => {
  const tracker = createTracker();
  assertEquals(tracker.updateSlice(undefined, WEB), true);
  const more = testEndpointSlice("web", { name: "web-2", endpoints: ["10.180.0.2"] });
  tracker.updateSlice(undefined, more);
  tracker.updateSlice(undefined, testEndpointSlice("api", { endpoints: ["10.180.0.3"] }));
  assertEquals([tracker.pending, tracker.total], [3, 3]);
  assertEquals(drain(tracker), {
    "ns1/web/TCP": ["10.180.0.1:80", "10.180.0.2:80"],
    "ns1/api/TCP": ["10.180.0.3:80"],
  });
  assertEquals([tracker.pending, tracker.total], [0, 3]);
  assertEquals(drain(tracker), {});
});

/** Events that change nothing, although upstream counts some of them as changes. */
const NO_CHANGES: readonly {
  readonly name: string;
  readonly slice: EndpointSlice;
  readonly action?: "set" | "delete";
  /** Whether the object counts as one of this family. */
  readonly counts: boolean;
}[] = [
  { name: "the same slice again", slice: WEB, counts: true },
  {
    name: "other metadata",
    slice: {
      ...WEB,
      metadata: { ...WEB.metadata, resourceVersion: "2", annotations: { note: "x" } },
    },
    counts: true,
  },
  {
    name: "a slice of the other family",
    slice: testEndpointSlice("web", {
      name: "web-6",
      addressType: "IPv6",
      endpoints: [ADDRESSES.IPv6.localPods[0]],
    }),
    counts: false,
  },
  {
    name: "a slice of host names",
    slice: testEndpointSlice("web", {
      name: "web-f",
      addressType: "FQDN",
      endpoints: ["web.example"],
    }),
    counts: false,
  },
  {
    name: "the deletion of an unknown slice",
    slice: testEndpointSlice("web", { name: "web-9" }),
    action: "delete",
    counts: true,
  },
  {
    name: "a slice of a headless Service",
    slice: testEndpointSlice("web", {
      name: "web-h",
      endpoints: ["10.180.0.1"],
      metadata: { labels: { "service.kubernetes.io/headless": "" } },
    }),
    counts: true,
  },
];

for (const { name, slice, action = "set", counts } of NO_CHANGES) {
  Deno.test(`EndpointTracker takes ${name} for no change`, () => {
    const tracker = createTracker([WEB]);
    const before = tracker.total;
    assertEquals(
      action === "set"
        ? tracker.updateSlice(undefined, slice)
        : tracker.updateSlice(slice, undefined),
      false,
    );
    assertEquals([tracker.pending, tracker.total - before], [0, counts ? 1 : 0]);
    assertEquals(drain(tracker), {});
  });
}

for (
  const [name, slice] of [
    ["no Service", testEndpointSlice("", { name: "stray" })],
    ["no label", { ...WEB, metadata: { namespace: "ns1", name: "custom" } }],
    ["no name", testEndpointSlice("web", { metadata: { name: "" } })],
    ["an empty namespace", testEndpointSlice("web", { metadata: { namespace: "" } })],
  ] as const
) {
  Deno.test(`EndpointTracker ignores a slice with ${name} and reports nothing`, () => {
    const tracker = createTracker();
    assertEquals(tracker.updateSlice(undefined, slice), false);
    assertEquals([tracker.pending, tracker.total, tracker.undrained], [0, 0, 0]);
    assertEquals(drain(tracker), {});
    assertEquals(tracker.updateSlice(slice, undefined), false);
  });
}

Deno.test("EndpointTracker reports problems of the objects in effect", () => {
  const tracker = createTracker();
  const problems = () => tracker.drain().problems.map(({ object, path }) => `${object} ${path}`);
  const wrong = testEndpoints("web", [{ addresses: [{ ip: "nonsense" }], ports: [{ port: 80 }] }]);
  tracker.updateSlice(undefined, WEB);
  tracker.updateEndpoints(undefined, wrong);
  assertEquals(problems(), []);
  tracker.updateSlice(WEB, undefined);
  assertEquals(problems(), ["ns1/web subsets[0].addresses[0].ip"]);
  const bad = testEndpointSlice("web", { endpoints: ["10.180.0.1", "nonsense"] });
  tracker.updateSlice(undefined, bad);
  assertEquals(problems(), ["ns1/web-1 endpoints[1].addresses"]);
  assertEquals([...tracker.endpoints.values()].flat().map(({ key }) => String(key)), [
    "10.180.0.1:80",
  ]);
});

Deno.test("EndpointTracker collects trigger times of changes after its start", () => {
  const tracker = createTracker();
  tracker.updateSlice(undefined, triggered(-1, "10.180.0.1"));
  tracker.updateSlice(undefined, triggered(1, "10.180.0.2"));
  tracker.updateSlice(undefined, triggered(2, "10.180.0.2"));
  tracker.updateSlice(undefined, triggered(3, "10.180.0.3"));
  assertEquals(tracker.drain().triggerTimes, [STARTED + 1000, STARTED + 3000]);
  assertEquals(tracker.drain().triggerTimes, []);
});

Deno.test("EndpointTracker drops trigger times when a slice of the Service is removed", () => {
  const tracker = createTracker([triggered(1, "10.180.0.1")]);
  tracker.updateSlice(undefined, triggered(2, "10.180.0.2"));
  tracker.updateSlice(triggered(2, "10.180.0.2"), undefined);
  assertEquals(tracker.drain().triggerTimes, []);
});

const FALLBACK = testEndpoints("web", [{
  addresses: [{ ip: "10.180.0.9" }],
  ports: [{ port: 80 }],
}]);

Deno.test("EndpointTracker.updateEndpoints() yields to slices, of either family, until the last one is removed", () => {
  const ipv6 = testEndpointSlice("web", { name: "web-6", addressType: "IPv6" });
  const tracker = createTracker([WEB, ipv6]);
  assertEquals(tracker.updateEndpoints(undefined, FALLBACK), false);
  assertEquals(tracker.pending, 0);
  assertEquals(drain(tracker), {});
  tracker.updateSlice(WEB, undefined);
  assertEquals(drain(tracker), { "ns1/web/TCP": [] });
  assertEquals(tracker.updateSlice(ipv6, undefined), true);
  assertEquals(drain(tracker), { "ns1/web/TCP": ["10.180.0.9:80"] });
});

for (
  const [label, value, used] of [
    ["endpointslice.kubernetes.io/skip-mirror", "true", false],
    ["endpointslice.kubernetes.io/skip-mirror", "false", true],
    ["service.kubernetes.io/headless", "", false],
  ] as const
) {
  Deno.test(`EndpointTracker.updateEndpoints() ${used ? "uses" : "ignores"} an object with label ${label}=${value}`, () => {
    const tracker = createTracker();
    const labelled = testEndpoints("web", FALLBACK.subsets, { labels: { [label]: value } });
    assertEquals(tracker.updateEndpoints(undefined, labelled), used);
    assertEquals(tracker.size, used ? 1 : 0);
  });
}

Deno.test("EndpointTracker serves by Endpoints next to a slice of host names, as if that were absent", () => {
  const mail = testEndpointSlice("mail", { endpoints: ["10.180.0.1"] });
  const tracker = createTracker([mail]);
  tracker.updateEndpoints(undefined, testEndpoints("mail", FALLBACK.subsets));
  assertEquals(drain(tracker), {});
  // A manifest may change the type of a slice, which the API server does not allow.
  const hosts = testEndpointSlice("mail", { addressType: "FQDN", endpoints: ["mail.example"] });
  assertEquals(tracker.updateSlice(mail, hosts), true);
  assertEquals(drain(tracker), { "ns1/mail/TCP": ["10.180.0.9:80"] });
  assertEquals(tracker.updateSlice(hosts, undefined), false);
});

Deno.test("EndpointTracker counts a slice of the other family in no figure, and keeps its own times", () => {
  const tracker = createTracker();
  tracker.updateSlice(undefined, triggered(5, "10.180.0.1"));
  const other = testEndpointSlice("web", { name: "web-6", addressType: "IPv6" });
  for (const [previous, current] of [[undefined, other], [other, undefined]]) {
    tracker.updateSlice(previous, current);
    assertEquals([tracker.pending, tracker.total, tracker.undrained], [1, 1, 1]);
  }
  assertEquals(tracker.drain().triggerTimes, [STARTED + 5000]);
  assertEquals([tracker.pending, tracker.undrained], [0, 0]);
});

const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];

/** One address in two slices. The node tells the winner; both orders of arrival are tried. */
for (
  const [what, winner, loser] of [
    ["the newer slice", { name: "web-1", age: NEW }, { name: "web-2", age: OLD }],
    [
      "the ready one of an older slice",
      { name: "web-1", age: OLD },
      { name: "web-2", age: NEW, ready: false },
    ],
    ["the slice with a known age", { name: "web-2", age: OLD }, { name: "web-1", age: undefined }],
    [
      "the slice whose name comes first, between equally old ones",
      { name: "web-1", age: OLD },
      { name: "web-2", age: OLD },
    ],
  ] as const
) {
  Deno.test(`EndpointTracker prefers ${what} for an endpoint named twice, then the other one`, () => {
    const sliceOf = (
      { name, age, ready = true }: { name: string; age: string | undefined; ready?: boolean },
      nodeName: string,
    ) =>
      testEndpointSlice("web", {
        name,
        endpoints: [{ addresses: ["10.0.0.1"], nodeName, conditions: { ready } }],
        metadata: age === undefined ? {} : { creationTimestamp: age },
      });
    const slices = [sliceOf(winner, "winner"), sliceOf(loser, "loser")] as const;
    const nodes = (lists: Iterable<readonly Endpoint[]>) =>
      [...lists].flat().map(({ nodeName }) => nodeName);
    for (const order of [slices, slices.toReversed()]) {
      const tracker = createTracker(order);
      assertEquals(nodes(tracker.endpoints.values()), ["winner"]);
      tracker.updateSlice(slices[0], undefined);
      tracker.drain();
      assertEquals(nodes(tracker.endpoints.values()), ["loser"]);
    }
  });
}

Deno.test("EndpointTracker looks at each slice of a Service a few times, however many there are", () => {
  const count = 2000;
  let reads = 0;
  const slices = Array.from({ length: count }, (_, index) => {
    const made = testEndpointSlice("web", {
      name: `web-${index}`,
      endpoints: [`10.0.${index >> 8}.${index & 255}`],
    });
    return Object.defineProperty({ ...made }, "addressType", {
      enumerable: true,
      get: () => (reads++, "IPv4"),
    });
  });
  const tracker = createTracker(slices);
  assertEquals([...tracker.endpoints.values()].map(({ length }) => length), [count]);
  for (const slice of slices) tracker.updateSlice(slice, { ...slice });
  assertEquals(tracker.undrained, 0);
  for (const slice of slices) tracker.updateSlice(slice, undefined);
  assertEquals(drain(tracker), { "ns1/web/TCP": [] });
  assertEquals(tracker.size, 0);
  assert(reads < 100 * count, `${reads} reads of ${count} slices`);
});

Deno.test("EndpointTracker keeps a thousand trigger times of one Service", () => {
  const tracker = createTracker();
  for (let index = 0; index < 20_000; index++) {
    tracker.updateSlice(undefined, triggered(1, `10.0.${index >> 8}.${index & 255}`));
  }
  assertEquals(tracker.drain().triggerTimes.length, 1000);
});

/** Reads the time of a change; the number of problems is 1 if it is not used. */
function read(annotation: string) {
  const tracker = new EndpointTracker("IPv4", THIS_NODE, 0);
  const metadata = { annotations: { [TRIGGER_TIME]: annotation } };
  tracker.updateSlice(undefined, testEndpointSlice("web", { endpoints: ["10.0.0.1"], metadata }));
  const { triggerTimes, problems } = tracker.drain();
  return { time: triggerTimes[0], problems: problems.length };
}

const START = Date.UTC(2026, 0, 2, 3, 4, 5);

for (
  const [text, time] of [
    ["2026-01-02T03:04:05Z", START],
    ["2026-01-02T03:04:05.5Z", START + 500],
    ["2026-01-02T03:04:05.123456789Z", START + 123.456789],
    ["2026-01-02T05:04:05+02:00", START],
  ] as const
) {
  Deno.test(`EndpointTracker reads the time ${text}`, () => {
    assertEquals(read(text), { time, problems: 0 });
  });
}

for (
  const text of [
    "",
    "now",
    "2026-01-02",
    "2026-01-02 03:04:05Z",
    "2026-01-02T03:04:05",
    "2026-13-02T03:04:05Z",
    "Fri, 02 Jan 2026 03:04:05 GMT",
  ]
) {
  Deno.test(`EndpointTracker reports the time '${text}'`, () => {
    assertEquals(read(text), { time: undefined, problems: 1 });
  });
}
