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

Deno.test("ServiceTracker.drain() gives every port of every new Service, at most as many as asked", () => {
  const tracker = createTracker();
  for (const service of [ONE, TWO, THREE, FOUR]) tracker.update(undefined, service);
  assertEquals(tracker.pending, 4);
  assertEquals(tracker.drain(3).keys.length, 5);
  assertEquals([tracker.pending, tracker.total], [1, 4]);
  assertEquals([tracker.drain().keys.length, tracker.ports.size], [3, 8]);
  assertEquals(drain(tracker).changed, []);
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
