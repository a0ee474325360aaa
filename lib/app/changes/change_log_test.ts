import { assert, assertEquals } from "@std/assert";
import { serviceLoop } from "../../../tests/support/builders/builders.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { ChangeLog } from "./change_log.ts";

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
