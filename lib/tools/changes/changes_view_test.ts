import { assert, assertEquals } from "@std/assert";
import type { ChangeEntry, RepairEntry, SyncEntry } from "./change_entry.ts";
import { renderChanges } from "./changes_view.ts";
import { durationText } from "../status/number_texts.ts";

const SYNC: SyncEntry = {
  kind: "sync",
  sequence: 1,
  at: "2026-11-22T04:58:48.742Z",
  family: "IPv4",
  outcome: "applied",
  causes: [{
    kind: "EndpointSlice",
    name: "default/web-x1",
    action: "updated",
    details: ["ready 3 -> 2", "endpoint 10.1.0.5:80 gone"],
    count: 3,
    seenAt: "2026-11-22T04:58:48.730Z",
  }],
  moreCauses: {},
  effects: [{
    servicePort: "default/web:http/TCP",
    action: "updated",
    details: ["3 endpoints -> 2 endpoints"],
  }],
  moreEffects: {},
  syncs: 1,
  full: false,
  operations: { chains: 2, lines: 6 },
  queuedMs: 0.4,
  planMs: 1,
  applyMs: 10.6,
  totalMs: 12,
  failures: 0,
};

function text(...entries: readonly ChangeEntry[]): string {
  return renderChanges({ entries, forgotten: 0, syncs: [] }, { timeZone: "UTC" });
}

Deno.test("renderChanges() reports cause, effect, work and times", () => {
  assertEquals(
    text(SYNC),
    `\
TIME      FAM       TOOK  CHANGE
2026-11-22
04:58:48  IPv4     12 ms  EndpointSlice default/web-x1 updated (3 changes):
                            ready 3 -> 2, endpoint 10.1.0.5:80 gone
                          -> default/web:http/TCP: 3 endpoints -> 2 endpoints
                          2 chains, 6 lines (waited 0.4 ms, planned 1 ms,
                            applied 11 ms)
`,
  );
});

Deno.test("renderChanges() marks failed and slow entries, and earlier failures", () => {
  const failed = text({ ...SYNC, outcome: "failed", failures: 2, error: "line 3: no such file" });
  assert(failed.includes("FAILED 2 times, is tried again: line 3: no such"), failed);
  const later = text({ ...SYNC, failures: 1, error: "line 3", slow: true });
  assert(later.includes("Had failed once: line 3"), later);
  assert(later.includes("SLOW: far longer"), later);
});

Deno.test("renderChanges() counts causes and effects beyond the limit", () => {
  const causes = Array.from({ length: 16 }, () => SYNC.causes[0]!);
  const many = text({
    ...SYNC,
    first: true,
    causes,
    moreCauses: { Service: 9999, EndpointSlice: 1 },
    moreEffects: { added: 12_345 },
  });
  assert(many.includes("First sync"), many);
  assert(many.includes("and 13 EndpointSlices, 9,999 Services"), many);
  assert(many.includes("-> and 12,345 ServicePorts added"), many);
  const one = text({ ...SYNC, moreCauses: { addresses: 1 }, moreEffects: { deleted: 1 } });
  assert(one.includes("and 1 change of addresses"), one);
  assert(one.includes("-> and 1 ServicePort deleted"), one);
});

Deno.test("renderChanges() reports quarantine, drift, configuration and each new day", () => {
  const at = "2026-11-23T00:00:01.000Z";
  const rendered = text(
    SYNC,
    {
      ...{ kind: "quarantine", sequence: 2, at, family: "IPv4", direction: "in" },
      ...{ servicePort: "default/web/TCP", address: "10.96.0.1:80/TCP", reason: "in use" },
    } as ChangeEntry,
    {
      kind: "drift",
      sequence: 3,
      at,
      family: "IPv6",
      object: "chain",
      found: 2,
      repaired: 2,
      times: 1,
    },
    { kind: "configuration", sequence: 4, at, fields: ["logging.verbosity"] },
  );
  for (
    const line of [
      "2026-11-23",
      "00:00:01  IPv4            QUARANTINE: default/web/TCP 10.96.0.1:80/TCP: in use",
      "00:00:01  IPv6            DRIFT: 2 chains not as written, 2 repaired",
      "00:00:01                  Configuration file: logging.verbosity",
    ]
  ) assert(rendered.split("\n").includes(line), `${line}\n${rendered}`);
});

Deno.test("renderChanges() shows the user of a repair, the repaired objects and the duration", () => {
  const repair: RepairEntry = {
    kind: "repair",
    sequence: 5,
    at: "2026-11-23T00:00:01Z",
    family: "IPv4",
    uid: 0,
    pid: 4711,
    objects: [
      { object: "map element", found: 3, repaired: 3 },
      { object: "rule", found: 1, repaired: 0 },
    ],
    tookMs: 312,
    times: 1,
  };
  assertEquals(
    text(repair).split("\n").slice(2),
    [
      "00:00:01  IPv4    312 ms  REPAIR by 'kube-relay diff --repair' (user 0,",
      "                            process 4711): 3 of 3 map elements, 0 of 1 rule",
      "                            repaired",
      "",
    ],
  );
  const { uid: _, ...anonymous } = repair;
  const failed = text({ ...anonymous, objects: [], times: 2, error: "nft: \x1b[2Jno" });
  assert(failed.includes("(process 4711),"), failed);
  assert(failed.includes("FAILED, so that more may be written: nft:"), failed);
  assert(!failed.includes("\x1b"));
});

Deno.test("renderChanges() shows only entries that match a filter, and says if there are none", () => {
  const report = { entries: [SYNC], forgotten: 0, syncs: [] };
  for (const filter of ["default/web", "web", "default"]) {
    assert(renderChanges(report, { filter }).includes("web-x1"), filter);
  }
  assertEquals(renderChanges(report, { filter: "other" }), "No change matches 'other'.\n");
  assertEquals(text(), "No changes yet.\n");
});

Deno.test("renderChanges() lets no object move the cursor or widen a line", () => {
  const [cause] = SYNC.causes;
  const evil = text({
    ...SYNC,
    causes: [{ ...cause!, name: `a\x1b[2J\n${"x".repeat(300)}`, details: ["\u202eb"] }],
  });
  // deno-lint-ignore no-control-regex
  assert(!/[\x00-\x09\x0b-\x1f\u202e]/.test(evil), evil);
  for (const line of evil.split("\n")) assert(line.length <= 80, line);
});

Deno.test("durationText() has two or three digits and a unit", () => {
  const texts = [0.42, 9.96, 12.4, 999.4, 999.6, 3210, 99_949, 252_000].map(durationText);
  assertEquals(texts, ["0.4 ms", "10 ms", "12 ms", "999 ms", "1.0 s", "3.2 s", "99.9 s", "4m12s"]);
});
