import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import type { Service } from "../api/kinds/service.ts";
import { ServiceTracker } from "./service_tracker.ts";

function ports(...numbers: readonly number[]) {
  return { ports: numbers.map((port) => ({ name: `p${port}`, port })) };
}

const ONE = testService("one", ports(1, 2));
const TWO = testService("two", ports(1, 2));
const THREE = testService("three", ports(1));
const FOUR = testService("four", ports(1, 2, 3));

function createTracker(services: readonly Service[] = []): ServiceTracker {
  const tracker = new ServiceTracker({ family: "IPv4" });
  for (const service of services) tracker.update(undefined, service);
  tracker.drain();
  return tracker;
}

/** Drains, and returns what a drain names and what the tracker holds then. */
function drain(tracker: ServiceTracker) {
  const { keys, problems } = tracker.drain();
  return {
    changed: keys.map(String),
    held: [...tracker.ports.keys()].map(String),
    problems: problems.map(({ path }) => path),
  };
}

Deno.test("ServiceTracker.update() without any object does nothing", () => {
  const tracker = createTracker();
  assertEquals(tracker.update(undefined, undefined), false);
  assertEquals([tracker.pending, tracker.total], [0, 0]);
});

Deno.test("ServiceTracker.drain() gives every port of every new Service, at most as many as asked", () => {
  const tracker = createTracker();
  for (const service of [ONE, TWO, THREE, FOUR]) tracker.update(undefined, service);
  assertEquals(tracker.pending, 4);
  assertEquals(tracker.drain(3).keys.length, 5);
  assertEquals([tracker.pending, tracker.total], [1, 4]);
  assertEquals([tracker.drain().keys.length, tracker.ports.size], [3, 8]);
  assertEquals(drain(tracker).changed, []);
});

Deno.test("ServiceTracker.drain() names ports and Services that went, and no others", () => {
  const tracker = createTracker([ONE, TWO, THREE]);
  tracker.update(ONE, testService("one", ports(2, 3)));
  for (const service of [TWO, THREE]) tracker.update(service, undefined);
  assertEquals(drain(tracker), {
    changed: [
      "ns1/one:p1/TCP",
      "ns1/one:p3/TCP",
      "ns1/two:p1/TCP",
      "ns1/two:p2/TCP",
      "ns1/three:p1/TCP",
    ],
    held: ["ns1/one:p2/TCP", "ns1/one:p3/TCP"],
    problems: [],
  });
});

const CHANGED = testService("one", { ...ports(1, 2), clusterIP: "172.30.0.99" });

/** Sequences without an effect, and some with one; the Service is known as ONE if `known`. */
const SEQUENCES: readonly {
  readonly name: string;
  readonly known: boolean;
  readonly updates: readonly (readonly [previous: Service | undefined, current?: Service])[];
  readonly pending: boolean;
}[] = [
  { name: "update(x, x)", known: true, updates: [[ONE, ONE]], pending: false },
  {
    name: "an annotation",
    known: true,
    updates: [[ONE, { ...ONE, metadata: { ...ONE.metadata, annotations: { note: "x" } } }]],
    pending: false,
  },
  {
    name: "a resourceVersion",
    known: true,
    updates: [[ONE, { ...ONE, metadata: { ...ONE.metadata, resourceVersion: "2" } }]],
    pending: false,
  },
  {
    name: "add then delete",
    known: false,
    updates: [[undefined, ONE], [ONE]],
    pending: false,
  },
  {
    name: "delete then add of the same",
    known: true,
    updates: [[ONE], [undefined, ONE]],
    pending: false,
  },
  {
    name: "change then revert",
    known: true,
    updates: [[ONE, CHANGED], [CHANGED, ONE]],
    pending: false,
  },
  {
    name: "a Service of another proxy",
    known: false,
    updates: [[undefined, testService("one", { clusterIP: "None" })]],
    pending: false,
  },
  { name: "a change", known: true, updates: [[ONE, CHANGED]], pending: true },
  {
    name: "delete then add of something else",
    known: true,
    updates: [[ONE], [undefined, CHANGED]],
    pending: true,
  },
  {
    name: "a Service that turns into ExternalName",
    known: true,
    updates: [[ONE, testService("one", { ...ports(1, 2), type: "ExternalName" })]],
    pending: true,
  },
];

for (const { name, known, updates, pending } of SEQUENCES) {
  Deno.test(`ServiceTracker takes ${name} for ${pending ? "a change" : "no change"}`, () => {
    const tracker = createTracker(known ? [ONE] : []);
    const before = tracker.total;
    const answers = updates.map(([previous, current]) => tracker.update(previous, current));
    assertEquals(answers.at(-1), pending);
    assertEquals(tracker.pending, pending ? 1 : 0);
    assertEquals(tracker.total, before + updates.length);
    if (!pending) assertEquals(drain(tracker).changed, []);
  });
}

Deno.test("ServiceTracker.update() reports changes of other Services, too", () => {
  const tracker = createTracker([TWO]);
  assertEquals(tracker.update(undefined, ONE), true);
  assertEquals(tracker.update(TWO, TWO), true);
});

Deno.test("ServiceTracker.drain() gives the last of several changes", () => {
  const tracker = createTracker([ONE]);
  tracker.update(ONE, testService("one", ports(3)));
  tracker.update(testService("one", ports(3)), testService("one", ports(4)));
  assertEquals(drain(tracker), {
    changed: ["ns1/one:p1/TCP", "ns1/one:p2/TCP", "ns1/one:p4/TCP"],
    held: ["ns1/one:p4/TCP"],
    problems: [],
  });
});

Deno.test("ServiceTracker reads its own family only", () => {
  const tracker = new ServiceTracker({ family: "IPv6" });
  assertEquals(tracker.update(undefined, ONE), false);
  assertEquals(tracker.total, 1);
});

Deno.test("ServiceTracker ignores external IPs with the gate off", () => {
  const tracker = new ServiceTracker({ family: "IPv4", allowExternalIps: false });
  tracker.update(undefined, testService("one", { externalIPs: ["192.168.99.11"] }));
  tracker.drain();
  assertEquals([...tracker.ports.values()].flatMap((port) => port.externalIps), []);
});

Deno.test("ServiceTracker reports a problem once, not with every update", () => {
  const bad = testService("one", { ...ports(1), externalIPs: ["nonsense"] });
  const tracker = createTracker();
  tracker.update(undefined, bad);
  tracker.update(bad, bad);
  assertEquals(drain(tracker).problems, ["spec.externalIPs[0]"]);
  assertEquals(tracker.update(bad, testService("one", { ...bad.spec, ...ports(2) })), true);
  assertEquals(drain(tracker).problems, []);
});

Deno.test("ServiceTracker asks for a sync that fetches a problem, even of an unchanged port", () => {
  const tracker = createTracker([ONE]);
  const bad = testService("one", { ...ports(1, 2), externalIPs: ["nonsense"] });
  assertEquals(tracker.update(ONE, bad), true);
  assertEquals(drain(tracker).problems, ["spec.externalIPs[0]"]);
  assertEquals(tracker.update(bad, bad), false);
});

Deno.test("ServiceTracker forgets a problem that is corrected before the drain", () => {
  const tracker = createTracker([ONE]);
  const bad = testService("one", { ...ports(1, 2), externalIPs: ["nonsense"] });
  tracker.update(ONE, bad);
  assertEquals(tracker.update(bad, ONE), false);
  assertEquals(drain(tracker).problems, []);
});
