import { assertEquals } from "@std/assert";
import type { ChangeEntry, SyncEntry } from "../../changes/change_entry.ts";
import { pageChanges } from "./page_changes.ts";
import type { PageChange } from "./page_model.ts";

const AT = "2026-01-01T00:00:01.000Z";

const SYNC: SyncEntry = {
  kind: "sync",
  sequence: 1,
  at: AT,
  family: "IPv4",
  outcome: "applied",
  causes: [{
    kind: "EndpointSlice",
    name: "default/web-abc",
    action: "updated",
    words: ["ready 2 -> 3"],
    count: 2,
    seenAt: AT,
  }],
  moreCauses: {},
  effects: [{
    servicePort: "default/web:http/TCP",
    action: "updated",
    words: ["2 -> 3 endpoints"],
  }],
  moreEffects: {},
  syncs: 1,
  full: false,
  operations: { lines: 6 },
  queuedMs: 1,
  planMs: 1,
  applyMs: 2,
  totalMs: 4.25,
  failures: 0,
};

function lineOf(entry: ChangeEntry): Omit<PageChange, "at"> {
  const { at: _, ...line } = pageChanges({ entries: [entry] })[0]!;
  return line;
}

Deno.test("pageChanges() names cause, effect and time of a sync", () => {
  assertEquals(lineOf(SYNC), {
    cause: "EndpointSlice default/web-abc: ready 2 -> 3 (2 changes)",
    effect: "IPv4: default/web:http/TCP 2 -> 3 endpoints; 6 lines, in effect after 4.3 ms",
  });
});

Deno.test("pageChanges() counts what it does not name", () => {
  const line = lineOf({
    ...SYNC,
    causes: Array.from({ length: 5 }, () => ({ ...SYNC.causes[0]!, count: 1 })),
    moreCauses: { Service: 10 },
    moreEffects: { added: 7 },
    totalMs: 2500,
    slow: true,
  });
  assertEquals(line.cause.endsWith("; 12 more"), true);
  assertEquals(line.effect.includes("7 more ServicePorts; 6 lines, in effect after 2.5 s"), true);
  assertEquals(line.attention, "slow");
});

Deno.test.each<readonly [ChangeEntry, string, string, PageChange["attention"]]>([
  [
    { ...SYNC, outcome: "failed", failures: 3, error: "nft: no" },
    "EndpointSlice default/web-abc: ready 2 -> 3 (2 changes)",
    "IPv4: failed 3 times: nft: no",
    "failed",
  ],
  [
    { ...SYNC, first: true, causes: [], effects: [], operations: {} },
    "The first sync of IPv4",
    "IPv4: nothing to do, in effect after 4.3 ms",
    undefined,
  ],
  [
    {
      ...{ kind: "quarantine", sequence: 2, at: AT, family: "IPv6", direction: "in" },
      ...{ servicePort: "default/web:http/TCP", address: "fd00::1", reason: "no such module" },
    },
    "default/web:http/TCP at fd00::1, IPv6",
    "no such module",
    "quarantine",
  ],
  [
    {
      ...{ kind: "quarantine", sequence: 2, at: AT, family: "IPv6", direction: "out" },
      ...{ servicePort: "default/web:http/TCP", reason: "no such module" },
    },
    "default/web:http/TCP, IPv6",
    "is out of quarantine",
    undefined,
  ],
  [
    {
      ...{ kind: "drift", sequence: 3, at: AT, family: "IPv4", object: "chain" },
      ...{ found: 2, repaired: 2, times: 1 },
    },
    "2 objects of kube-relay (chain, IPv4) were missing or changed",
    "2 put back",
    "drift",
  ],
  [
    {
      ...{ kind: "repair", sequence: 5, at: AT, family: "IPv4", uid: 0, pid: 4711, tookMs: 1 },
      ...{ objects: [{ object: "rule", found: 2, mended: 1 }], times: 1, error: "full" },
    },
    "kube-relay diff --repair by user 0, IPv4",
    "1 of 2 rules repaired; it failed: full",
    "drift",
  ],
  [
    { kind: "configuration", sequence: 4, at: AT, fields: ["mode", "nodePortAddresses"] },
    "The configuration file: mode, nodePortAddresses",
    "taken up",
    undefined,
  ],
])("pageChanges() of entry %#", (entry, cause, effect, attention) => {
  assertEquals(lineOf(entry), {
    cause,
    effect,
    ...(attention && { attention }),
  });
});
