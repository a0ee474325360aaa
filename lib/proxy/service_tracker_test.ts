import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import type { Service } from "../api/kinds/service.ts";
import { ServiceChangeTracker, take } from "./service_changes.ts";

function ports(...numbers: readonly number[]) {
  return { ports: numbers.map((port) => ({ name: `p${port}`, port })) };
}

const ONE = testService("one", ports(1, 2));
const TWO = testService("two", ports(1, 2));
const THREE = testService("three", ports(1));
const FOUR = testService("four", ports(1, 2, 3));

function createTracker(services: readonly Service[] = []): ServiceChangeTracker {
  const tracker = new ServiceChangeTracker({ family: "IPv4" });
  for (const service of services) tracker.update(undefined, service);
  tracker.drain();
  return tracker;
}

/** Returns the content of a drain as plain text. */
function drain(tracker: ServiceChangeTracker) {
  const { services, upserted, removed, problems } = tracker.drain();
  return {
    services: [...services].map(String),
    upserted: [...upserted.keys()].map(String),
    removed: [...removed].map(String),
    problems: problems.map(({ path }) => path),
  };
}

const NOTHING = { services: [], upserted: [], removed: [], problems: [] };

Deno.test("ServiceChangeTracker.update() without any object does nothing", () => {
  const tracker = createTracker();
  assertEquals(tracker.update(undefined, undefined), false);
  assertEquals([tracker.pending, tracker.total], [0, 0]);
});

Deno.test("ServiceChangeTracker.drain() gives every port of every new Service", () => {
  const tracker = createTracker();
  for (const service of [ONE, TWO, THREE, FOUR]) tracker.update(undefined, service);
  assertEquals(tracker.pending, 4);
  const changes = tracker.drain();
  assertEquals([changes.services.size, changes.upserted.size, changes.removed.size], [4, 8, 0]);
  assertEquals([tracker.pending, tracker.total], [0, 4]);
  assertEquals(drain(tracker), NOTHING);
});

Deno.test("ServiceChangeTracker.drain() names ports and Services that went", () => {
  const tracker = createTracker([ONE, TWO, THREE, FOUR]);
  tracker.update(ONE, testService("one", ports(2)));
  for (const service of [TWO, THREE, FOUR]) tracker.update(service, undefined);
  assertEquals(drain(tracker), {
    services: ["ns1/one", "ns1/two", "ns1/three", "ns1/four"],
    upserted: ["ns1/one:p2/TCP"],
    removed: [
      "ns1/one:p1/TCP",
      "ns1/two:p1/TCP",
      "ns1/two:p2/TCP",
      "ns1/three:p1/TCP",
      "ns1/four:p1/TCP",
      "ns1/four:p2/TCP",
      "ns1/four:p3/TCP",
    ],
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
  Deno.test(`ServiceChangeTracker takes ${name} for ${pending ? "a change" : "no change"}`, () => {
    const tracker = createTracker(known ? [ONE] : []);
    const before = tracker.total;
    const answers = updates.map(([previous, current]) => tracker.update(previous, current));
    assertEquals(answers.at(-1), pending);
    assertEquals(tracker.pending, pending ? 1 : 0);
    assertEquals(tracker.total, before + updates.length);
    if (!pending) assertEquals(drain(tracker), NOTHING);
  });
}

Deno.test("ServiceChangeTracker.update() reports changes of other Services, too", () => {
  const tracker = createTracker([TWO]);
  assertEquals(tracker.update(undefined, ONE), true);
  assertEquals(tracker.update(TWO, TWO), true);
});

Deno.test("ServiceChangeTracker.drain() gives the last of several changes", () => {
  const tracker = createTracker([ONE]);
  tracker.update(ONE, testService("one", ports(3)));
  tracker.update(testService("one", ports(3)), testService("one", ports(4)));
  assertEquals(drain(tracker), {
    services: ["ns1/one"],
    upserted: ["ns1/one:p4/TCP"],
    removed: ["ns1/one:p1/TCP", "ns1/one:p2/TCP"],
    problems: [],
  });
});

Deno.test("ServiceChangeTracker reads its own family only", () => {
  const tracker = new ServiceChangeTracker({ family: "IPv6" });
  assertEquals(tracker.update(undefined, ONE), false);
  assertEquals(tracker.total, 1);
});

Deno.test("ServiceChangeTracker ignores external IPs with the gate off", () => {
  const tracker = new ServiceChangeTracker({ family: "IPv4", allowExternalIps: false });
  tracker.update(undefined, testService("one", { externalIPs: ["192.168.99.11"] }));
  assertEquals([...tracker.drain().upserted.values()].flatMap((port) => port.externalIps), []);
});

Deno.test("ServiceChangeTracker reports a problem once, not with every update", () => {
  const bad = testService("one", { ...ports(1), externalIPs: ["nonsense"] });
  const tracker = createTracker();
  tracker.update(undefined, bad);
  tracker.update(bad, bad);
  assertEquals(drain(tracker).problems, ["spec.externalIPs[0]"]);
  assertEquals(tracker.update(bad, testService("one", { ...bad.spec, ...ports(2) })), true);
  assertEquals(drain(tracker).problems, []);
});

Deno.test("ServiceChangeTracker asks for a sync that fetches a problem, even of an unchanged port", () => {
  const tracker = createTracker([ONE]);
  const bad = testService("one", { ...ports(1, 2), externalIPs: ["nonsense"] });
  assertEquals(tracker.update(ONE, bad), true);
  assertEquals(drain(tracker), { ...NOTHING, problems: ["spec.externalIPs[0]"] });
  assertEquals(tracker.update(bad, bad), false);
});

Deno.test("ServiceChangeTracker forgets a problem that is corrected before the drain", () => {
  const tracker = createTracker([ONE]);
  const bad = testService("one", { ...ports(1, 2), externalIPs: ["nonsense"] });
  tracker.update(ONE, bad);
  assertEquals(tracker.update(bad, ONE), false);
  assertEquals(drain(tracker), NOTHING);
});

for (
  const [limit, taken, left] of [
    [0, [], ["a", "b", "c"]],
    [2, ["a", "b"], ["c"]],
    [3, ["a", "b", "c"], []],
    [Infinity, ["a", "b", "c"], []],
  ] as const
) {
  Deno.test(`take() gives the oldest ${limit} entries and deletes them`, () => {
    const map = new Map([["a", 1], ["b", 2], ["c", 3]]);
    assertEquals<readonly string[]>([...take(map, limit)].map(([key]) => key), taken);
    assertEquals<readonly string[]>([...map.keys()], left);
  });
}
