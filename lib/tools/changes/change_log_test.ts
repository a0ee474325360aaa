import { assert, assertEquals } from "@std/assert";
import { serviceLoop } from "../../../tests/support/builders/builders.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { EndpointKey } from "../../proxy/endpoint.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { SyncEntry } from "./change_entry.ts";
import { ChangeLog } from "./change_log.ts";
import { renderChanges } from "./changes_view.ts";

function quarantine(reason: string) {
  return {
    kind: "quarantine",
    at: "2026-01-01T00:00:00.000Z",
    family: "IPv4",
    direction: "in",
    servicePort: "ns1/web/TCP",
    reason,
  } as const;
}

Deno.test("ChangeLog keeps a limited number of entries, and counts the dropped ones", () => {
  const log = new ChangeLog({ clock: new FakeClock() }, { entries: 3 });
  for (let index = 0; index < 5; index++) log.add(quarantine(`${index}`));
  const { entries, forgotten } = log.recent();
  assertEquals(entries.map(({ sequence }) => sequence), [3, 4, 5]);
  assertEquals(forgotten, 2);
  assertEquals(log.recent(2).entries.map(({ sequence }) => sequence), [4, 5]);
});

Deno.test("ChangeLog keeps a limited number of bytes, whatever the texts are", () => {
  const bytes = 100_000;
  const log = new ChangeLog({ clock: new FakeClock() }, { bytes });
  for (let index = 0; index < 400; index++) {
    log.add(quarantine("\u20ac".repeat(1000)));
    assert(log.bytes <= bytes, `${log.bytes} after ${index + 1} entries`);
  }
  assert(log.recent().entries.length > 10);
  assertEquals(log.recent().entries.at(-1)!.sequence, 400);
});

Deno.test("ChangeLog replaces an entry in its place, and adds one that is forgotten", () => {
  const log = new ChangeLog({ clock: new FakeClock() }, { entries: 2 });
  const [first] = ["a", "b"].map((reason) => log.add(quarantine(reason)));
  log.replace(first!.sequence, quarantine("A"));
  assertEquals(reasons(log), ["A", "b"]);
  log.add(quarantine("c"));
  log.replace(first!.sequence, quarantine("again"));
  assertEquals(reasons(log), ["c", "again"]);
});

Deno.test("ChangeLog counts drift that is found again in a row", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 0, repaired: 0 });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 2, repaired: 2 });
  log.driftFound(serviceLoop("IPv4"), { kind: "chain", found: 1, repaired: 0 });
  log.driftFound(serviceLoop("IPv6"), { kind: "chain", found: 1, repaired: 1 });
  const [first, second, ...others] = log.recent().entries;
  assert(first?.kind === "drift" && second?.kind === "drift");
  assertEquals([first.found, first.repaired, first.times], [3, 2, 2]);
  assertEquals([second.family, second.found, second.times], ["IPv6", 1, 1]);
  assertEquals(others, []);
});

Deno.test("ChangeLog keeps the times of the last syncs", () => {
  const log = new ChangeLog({ clock: new FakeClock() });
  for (let at = 0; at < 500; at++) {
    log.timed({ family: "IPv4", at, durationMs: 1, outcome: "applied" });
  }
  const { syncs } = log.recent();
  assertEquals(syncs.length, 120);
  assertEquals(syncs.at(-1)!.at, 499);
});

function reasons(log: ChangeLog): readonly string[] {
  return log.recent().entries.flatMap((entry) => entry.kind === "quarantine" ? entry.reason : []);
}

const DNS = "kube-system/dns:dns/UDP" as ServicePortKey;
const NTP = "infra/ntp/UDP" as ServicePortKey;

function sync(overrides: Partial<SyncEntry> = {}): Omit<SyncEntry, "sequence"> {
  const effects = [{ servicePort: DNS, action: "updated", details: [] }] as const;
  return {
    kind: "sync",
    at: "2026-11-22T04:58:48.742Z",
    family: "IPv4",
    outcome: "applied",
    ...{ causes: [], moreCauses: {}, effects, moreEffects: {}, syncs: 1, operations: {} },
    ...{ queuedMs: 0, planMs: 0, applyMs: 0, totalMs: 0, failures: 0 },
    ...overrides,
  };
}

function removed(...counts: readonly (readonly [ServicePortKey, number])[]) {
  return { suspects: counts.map(([key]) => key), removed: new Map(counts), tookMs: 20 };
}

function flowsOf(log: ChangeLog) {
  return log.recent().entries.map((entry) => entry.kind === "sync" ? entry.flows : undefined);
}

function logOf(...entries: readonly Omit<SyncEntry, "sequence">[]): ChangeLog {
  const log = new ChangeLog({ clock: new FakeClock() });
  for (const entry of entries) log.add(entry);
  return log;
}

Deno.test("flowsCleaned() adds to the newest sync that changed the ServicePort", () => {
  const log = logOf(sync(), sync(), sync({ effects: [] }), sync({ family: "IPv6" }));
  log.flowsCleaned("IPv4", removed([DNS, 12]));
  const flows = { services: [{ servicePort: DNS, flows: 12 }], more: 0, tookMs: 20, failures: 0 };
  assertEquals(flowsOf(log), [undefined, flows, undefined, undefined]);
  log.flowsCleaned("IPv4", removed([DNS, 3]));
  assertEquals(flowsOf(log)[1], {
    ...flows,
    services: [{ servicePort: DNS, flows: 15 }],
    tookMs: 40,
  });
  log.flowsCleaned("IPv4", removed([NTP, 1]));
  assertEquals(flowsOf(log).filter((each) => each).length, 1, "that one was not changed");
});

Deno.test("flowsCleaned() adds to a sync that does not name all, and limits its names", () => {
  const log = logOf(sync(), sync({ effects: [], moreEffects: { updated: 100 } }));
  const many = Array.from(
    { length: 100 },
    (_, n) => [`ns/s${n}/UDP` as ServicePortKey, 1] as const,
  );
  log.flowsCleaned("IPv4", removed(...many, [DNS, 5]));
  const [first, second] = flowsOf(log);
  assertEquals([first, second?.services.length, second?.more], [undefined, 16, 89]);
});

Deno.test("flowsCleaned() marks a failure until it works, and then reports that it had failed", () => {
  const log = logOf(sync());
  const text = () => renderChanges(log.recent(), { timeZone: "UTC", columns: 120 });
  const failed = { suspects: [DNS], removed: new Map(), tookMs: 5, error: "no \x1b[2Jprogram" };
  log.flowsCleaned("IPv4", failed);
  log.flowsCleaned("IPv4", { ...failed, error: "x".repeat(10_000) });
  assertEquals(flowsOf(log)[0]?.error?.length, 400);
  log.flowsCleaned("IPv4", failed);
  assert(text().includes("FAILED 3 times to remove UDP flows, is tried again: no "), text());
  assert(!text().includes("\x1b"));
  log.flowsCleaned("IPv4", removed([DNS, 1_200]));
  assert(
    text().includes(`UDP flows to former endpoints removed: 1,200 of ${DNS} (35 ms)`),
    text(),
  );
  assert(text().includes("Removing UDP flows had failed 3 times"), text());
  assertEquals(flowsOf(log)[0]?.error, undefined);
});

Deno.test("flowsCleaned() changes nothing if nothing was found, and outlives another state", () => {
  const log = logOf(sync());
  log.flowsCleaned("IPv4", { suspects: [DNS], removed: new Map(), tookMs: 5 });
  assertEquals(flowsOf(log), [undefined]);
  log.flowsCleaned("IPv4", removed([DNS, 2]));
  log.replace(1, sync({ syncs: 2 }));
  assertEquals(flowsOf(log)[0]?.services, [{ servicePort: DNS, flows: 2 }]);
});

Deno.test("flowsCleaned() is quick with a full log and 20,000 suspects", () => {
  const effects = Array.from(
    { length: 16 },
    (_, n) => ({ servicePort: `ns/${n}/UDP`, action: "added", details: [] }) as const,
  );
  const log = logOf(...Array.from({ length: 500 }, () => sync({ effects })));
  const suspects = Array.from({ length: 20_000 }, (_, n) => `ns/${n}/UDP` as ServicePortKey);
  log.flowsCleaned("IPv4", { suspects, removed: new Map(), tookMs: 1, error: "no" });
  assertEquals(flowsOf(log).filter((each) => each?.error).length, 1);
});

Deno.test("ChangeLog.healthChanged() merges a burst, and keeps its newest changes", async () => {
  const clock = new FakeClock();
  const log = new ChangeLog({ clock });
  const servicePort = "ns1/web/TCP" as ServicePortKey;
  const change = (index: number) => ({
    ...{ servicePort, endpoint: `10.0.0.${index}:80` as EndpointKey },
    ...{ state: "unhealthy", reason: "refused" } as const,
  });
  log.healthChanged("IPv4", Array.from({ length: 100 }, (_, index) => change(index)));
  await clock.advance(5000);
  const { reason: _, ...healthy } = change(100);
  log.healthChanged("IPv4", [{ ...healthy, state: "healthy" }]);
  log.healthChanged("IPv6", [change(1)]);
  log.healthChanged("IPv4", [change(101)]);
  await clock.advance(5001);
  log.healthChanged("IPv6", [{ ...change(2), reason: "x".repeat(1000) }]);
  const shapes = log.recent().entries.map((entry) =>
    entry.kind === "health" &&
    `${entry.family} ${entry.changes.length} +${entry.more} ${entry.changes.at(-1)?.endpoint}`
  );
  assertEquals(shapes, [
    "IPv4 8 +94 10.0.0.101:80",
    "IPv6 1 +0 10.0.0.1:80",
    "IPv6 1 +0 10.0.0.2:80",
  ]);
  const text = renderChanges(log.recent(), { timeZone: "UTC", columns: 400 });
  assert(text.includes("94 changes of health before these"), text);
  assert(text.includes("Endpoint 10.0.0.99:80 of ns1/web/TCP unhealthy: refused"), text);
  assert(text.includes("Endpoint 10.0.0.100:80 of ns1/web/TCP healthy again"), text);
  const last = log.recent().entries.at(-1);
  assertEquals(last?.kind === "health" && last.changes[0]?.reason?.length, 400);
  const filtered = renderChanges(log.recent(), { timeZone: "UTC", filter: "other" });
  assertEquals(filtered, "No change matches 'other'.\n");
});
