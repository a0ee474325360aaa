import { assertEquals } from "@std/assert";
import { ADDRESSES, THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testEndpoints, testEndpointSlice } from "../../tests/support/builders/builders.ts";
import type { EndpointSlice } from "../api/kinds/endpoint_slice.ts";
import { EndpointsChangeTracker, triggerTimeOf } from "./endpoints_changes.ts";
import { ProblemCollector } from "../api/problem_collector.ts";

const STARTED = Date.UTC(2026, 0, 2);
const TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time";

function createTracker(slices: readonly EndpointSlice[] = []): EndpointsChangeTracker {
  const tracker = new EndpointsChangeTracker({
    family: "IPv4",
    nodeName: THIS_NODE,
    startedAtMs: STARTED,
  });
  for (const slice of slices) tracker.updateSlice(slice, "set");
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

/** Returns the content of a drain as plain text. */
function drain(tracker: EndpointsChangeTracker) {
  const { services, endpoints, touchesUdp, problems } = tracker.drain();
  return {
    services: [...services].map(String),
    endpoints: Object.fromEntries(
      [...endpoints].map(([key, list]) => [key, list.map((endpoint) => String(endpoint.key))]),
    ),
    touchesUdp,
    problems: problems.map(({ object, path }) => `${object} ${path}`),
  };
}

const NOTHING = { services: [], endpoints: {}, touchesUdp: false, problems: [] };
const WEB = testEndpointSlice("web", { endpoints: ["10.180.0.1"] });

Deno.test("EndpointsChangeTracker.drain() gives all endpoints of the Services that changed", () => {
  const tracker = createTracker();
  assertEquals(tracker.updateSlice(WEB, "set"), true);
  const more = testEndpointSlice("web", { name: "web-2", endpoints: ["10.180.0.2"] });
  tracker.updateSlice(more, "set");
  tracker.updateSlice(testEndpointSlice("api", { endpoints: ["10.180.0.3"] }), "set");
  assertEquals([tracker.pending, tracker.total], [3, 3]);
  assertEquals(drain(tracker), {
    services: ["ns1/web", "ns1/api"],
    endpoints: {
      "ns1/web/TCP": ["10.180.0.1:80", "10.180.0.2:80"],
      "ns1/api/TCP": ["10.180.0.3:80"],
    },
    touchesUdp: false,
    problems: [],
  });
  assertEquals([tracker.pending, tracker.total], [0, 3]);
  assertEquals(drain(tracker), NOTHING);
});

Deno.test("EndpointsChangeTracker names only the Service that changed", () => {
  const tracker = createTracker([
    WEB,
    testEndpointSlice("api", { endpoints: ["10.180.0.3"] }),
  ]);
  tracker.updateSlice(testEndpointSlice("api", { endpoints: ["10.180.0.4"] }), "set");
  assertEquals(drain(tracker).endpoints, { "ns1/api/TCP": ["10.180.0.4:80"] });
});

Deno.test("EndpointsChangeTracker says of a deleted slice's port that it has no endpoints", () => {
  const tracker = createTracker([WEB]);
  assertEquals(tracker.updateSlice(WEB, "delete"), true);
  assertEquals(drain(tracker), {
    ...NOTHING,
    services: ["ns1/web"],
    endpoints: { "ns1/web/TCP": [] },
  });
  assertEquals(tracker.size, 0);
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
  Deno.test(`EndpointsChangeTracker takes ${name} for no change`, () => {
    const tracker = createTracker([WEB]);
    const before = tracker.total;
    assertEquals(tracker.updateSlice(slice, action), false);
    assertEquals([tracker.pending, tracker.total - before], [0, counts ? 1 : 0]);
    assertEquals(drain(tracker), NOTHING);
  });
}

Deno.test("EndpointsChangeTracker drops a slice that turns headless", () => {
  const tracker = createTracker([WEB]);
  const labels = { ...WEB.metadata.labels, "service.kubernetes.io/headless": "" };
  const headless = { ...WEB, metadata: { ...WEB.metadata, labels } };
  assertEquals(tracker.updateSlice(headless, "set"), true);
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": [] });
});

for (
  const [name, slice] of [
    ["no Service", testEndpointSlice("", { name: "stray" })],
    ["no label", { ...WEB, metadata: { namespace: "ns1", name: "custom" } }],
    ["no name", testEndpointSlice("web", { metadata: { name: "" } })],
    ["an empty namespace", testEndpointSlice("web", { metadata: { namespace: "" } })],
  ] as const
) {
  Deno.test(`EndpointsChangeTracker ignores a slice with ${name} and reports nothing`, () => {
    const tracker = createTracker();
    assertEquals(tracker.updateSlice(slice, "set"), false);
    assertEquals([tracker.pending, tracker.total, tracker.changed], [0, 0, false]);
    assertEquals(drain(tracker), NOTHING);
    assertEquals(tracker.updateSlice(slice, "delete"), false);
  });
}

Deno.test("EndpointsChangeTracker reports problems inside of a slice", () => {
  const tracker = createTracker();
  tracker.updateSlice(testEndpointSlice("web", { endpoints: ["10.180.0.1", "nonsense"] }), "set");
  assertEquals(drain(tracker), {
    services: ["ns1/web"],
    endpoints: { "ns1/web/TCP": ["10.180.0.1:80"] },
    touchesUdp: false,
    problems: ["ns1/web-1 endpoints[1].addresses"],
  });
});

Deno.test("EndpointsChangeTracker knows when a UDP port is touched, also by its last endpoint", () => {
  const dns = testEndpointSlice("dns", {
    endpoints: ["10.180.0.1"],
    ports: [{ name: "", protocol: "UDP", port: 53 }],
  });
  const tracker = createTracker();
  tracker.updateSlice(dns, "set");
  assertEquals(drain(tracker).touchesUdp, true);
  tracker.updateSlice(WEB, "set");
  assertEquals(drain(tracker).touchesUdp, false);
  tracker.updateSlice(dns, "delete");
  assertEquals(drain(tracker).touchesUdp, true);
});

Deno.test("EndpointsChangeTracker collects trigger times of changes after its start", () => {
  const tracker = createTracker();
  tracker.updateSlice(triggered(-1, "10.180.0.1"), "set");
  tracker.updateSlice(triggered(1, "10.180.0.2"), "set");
  tracker.updateSlice(triggered(2, "10.180.0.2"), "set");
  tracker.updateSlice(triggered(3, "10.180.0.3"), "set");
  const { triggerTimes } = tracker.drain();
  assertEquals<unknown>([...triggerTimes], [["ns1/web", [STARTED + 1000, STARTED + 3000]]]);
  assertEquals(tracker.drain().triggerTimes.size, 0);
});

Deno.test("EndpointsChangeTracker drops trigger times when a slice of the Service is removed", () => {
  const tracker = createTracker([triggered(1, "10.180.0.1")]);
  tracker.updateSlice(triggered(2, "10.180.0.2"), "set");
  tracker.updateSlice(triggered(2, "10.180.0.2"), "delete");
  assertEquals(tracker.drain().triggerTimes.size, 0);
});

Deno.test("EndpointsChangeTracker treats a reverted change as no change", () => {
  const tracker = createTracker([WEB]);
  tracker.updateSlice(testEndpointSlice("web", { endpoints: ["10.180.0.2"] }), "set");
  tracker.updateSlice(WEB, "set");
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": ["10.180.0.1:80"] });
});

const FALLBACK = testEndpoints("web", [{
  addresses: [{ ip: "10.180.0.9" }],
  ports: [{ port: 80 }],
}]);

Deno.test("EndpointsChangeTracker.updateEndpoints() serves a Service without slices", () => {
  const tracker = createTracker();
  assertEquals(tracker.updateEndpoints(FALLBACK, "set"), true);
  assertEquals(tracker.updateEndpoints(FALLBACK, "set"), false);
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": ["10.180.0.9:80"] });
  assertEquals(tracker.updateEndpoints(FALLBACK, "delete"), true);
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": [] });
  assertEquals([tracker.total, tracker.size], [3, 0]);
});

Deno.test("EndpointsChangeTracker.updateEndpoints() yields to slices, of either family, until the last one is removed", () => {
  const ipv6 = testEndpointSlice("web", { name: "web-6", addressType: "IPv6" });
  const tracker = createTracker([WEB, ipv6]);
  assertEquals(tracker.updateEndpoints(FALLBACK, "set"), false);
  assertEquals(tracker.pending, 0);
  assertEquals(drain(tracker), NOTHING);
  tracker.updateSlice(WEB, "delete");
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": [] });
  assertEquals(tracker.updateSlice(ipv6, "delete"), true);
  assertEquals(drain(tracker).endpoints, { "ns1/web/TCP": ["10.180.0.9:80"] });
});

for (
  const [label, value, used] of [
    ["endpointslice.kubernetes.io/skip-mirror", "true", false],
    ["endpointslice.kubernetes.io/skip-mirror", "false", true],
    ["service.kubernetes.io/headless", "", false],
  ] as const
) {
  Deno.test(`EndpointsChangeTracker.updateEndpoints() ${used ? "uses" : "ignores"} an object with label ${label}=${value}`, () => {
    const tracker = createTracker();
    const labelled = testEndpoints("web", FALLBACK.subsets, { labels: { [label]: value } });
    assertEquals(tracker.updateEndpoints(labelled, "set"), used);
    assertEquals(tracker.size, used ? 1 : 0);
  });
}

Deno.test("EndpointsChangeTracker serves by Endpoints next to a slice of host names, as if that were absent", () => {
  const tracker = createTracker([testEndpointSlice("mail", { endpoints: ["10.180.0.1"] })]);
  tracker.updateEndpoints(testEndpoints("mail", FALLBACK.subsets), "set");
  assertEquals(drain(tracker), NOTHING);
  // A manifest may change the type of a slice, which the API server does not allow.
  const hosts = testEndpointSlice("mail", { addressType: "FQDN", endpoints: ["mail.example"] });
  assertEquals(tracker.updateSlice(hosts, "set"), true);
  assertEquals(drain(tracker).endpoints, { "ns1/mail/TCP": ["10.180.0.9:80"] });
  assertEquals(tracker.updateSlice(hosts, "delete"), false);
});

Deno.test("EndpointsChangeTracker counts a slice of the other family in no figure, and keeps its own times", () => {
  const tracker = createTracker();
  tracker.updateSlice(triggered(5, "10.180.0.1"), "set");
  const other = testEndpointSlice("web", { name: "web-6", addressType: "IPv6" });
  for (const action of ["set", "delete"] as const) {
    tracker.updateSlice(other, action);
    assertEquals([tracker.pending, tracker.total, tracker.changed], [1, 1, true], action);
  }
  assertEquals([...tracker.drain().triggerTimes.values()], [[STARTED + 5000]]);
  assertEquals([tracker.pending, tracker.changed], [0, false]);
});

Deno.test("EndpointsChangeTracker.changed is true if only the other family's slices changed", () => {
  const tracker = createTracker();
  tracker.updateEndpoints(testEndpoints("mail", FALLBACK.subsets), "set");
  tracker.drain();
  tracker.updateSlice(testEndpointSlice("mail", { name: "mail-6", addressType: "IPv6" }), "set");
  assertEquals([tracker.pending, tracker.changed], [0, true]);
  tracker.drain();
  assertEquals(tracker.changed, false);
});

Deno.test("EndpointsChangeTracker keeps a thousand trigger times of one Service", () => {
  const tracker = createTracker();
  for (let index = 0; index < 20_000; index++) {
    tracker.updateSlice(triggered(1, `10.0.${index >> 8}.${index & 255}`), "set");
  }
  const { triggerTimes } = tracker.drain();
  assertEquals([...triggerTimes.values()].map(({ length }) => length), [1000]);
});

const ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

function read(text: string) {
  const problems = new ProblemCollector("EndpointSlice", "ns1/web-1");
  const time = triggerTimeOf({ name: "web-1", annotations: { [ANNOTATION]: text } }, problems);
  return { time, problems: problems.problems.length };
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
  Deno.test(`triggerTimeOf() reads ${text}`, () => {
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
  Deno.test(`triggerTimeOf() reports '${text}'`, () => {
    assertEquals(read(text), { time: undefined, problems: 1 });
  });
}

Deno.test("triggerTimeOf() returns nothing without a time", () => {
  const problems = new ProblemCollector("EndpointSlice", "ns1/web-1");
  assertEquals(triggerTimeOf({ name: "web-1" }, problems), undefined);
  assertEquals(problems.problems, []);
});
