import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import { ChangeLog } from "./change_log.ts";
import { parseRepairNote, repairedObjects, type RepairNote } from "./repair_note.ts";

const NOTE: RepairNote = {
  family: "IPv4",
  uid: 0,
  pid: 4711,
  objects: [{ object: "map element", found: 3, repaired: 2 }],
  tookMs: 12.3,
};

Deno.test("parseRepairNote() accepts the report of diff", () => {
  assertEquals(parseRepairNote(NOTE), { note: NOTE });
  const { uid: _, ...anonymous } = NOTE;
  assertEquals(parseRepairNote({ ...anonymous, error: "full" }), {
    note: { ...anonymous, error: "full" },
  });
});

const [OBJECT] = NOTE.objects;

for (
  const bad of [
    undefined,
    null,
    [],
    "repair",
    {},
    { ...NOTE, family: "IPX" },
    { ...NOTE, at: "2026-01-01T00:00:00Z" },
    { ...NOTE, kind: "sync" },
    { ...NOTE, times: 1e9 },
    { ...NOTE, uid: -1 },
    { ...NOTE, pid: 1.5 },
    { ...NOTE, tookMs: -1 },
    { ...NOTE, tookMs: 1e300 },
    { ...NOTE, error: "x".repeat(401) },
    { ...NOTE, objects: [{ ...OBJECT, object: "\x1b[2J" }] },
    { ...NOTE, objects: [{ ...OBJECT, object: "r".repeat(41) }] },
    { ...NOTE, objects: [{ ...OBJECT, repaired: 4 }] },
    { ...NOTE, objects: [{ ...OBJECT, found: 1e12 }] },
    { ...NOTE, objects: [{ ...OBJECT, more: 1 }] },
    { ...NOTE, objects: [OBJECT, OBJECT] },
    {
      ...NOTE,
      objects: Array.from({ length: 17 }, (_, n) => ({ ...OBJECT, object: "a".repeat(n + 1) })),
    },
    JSON.parse(`{"__proto__": ${JSON.stringify(NOTE)}}`),
  ]
) {
  Deno.test(`parseRepairNote() refuses ${JSON.stringify(bad)?.slice(0, 60)}`, () => {
    assert("problem" in parseRepairNote(bad));
  });
}

Deno.test("repairedObjects() counts by kind of object", () => {
  const of = (object: string): DataPlaneDifference => ({ object, name: "x", kind: "missing" });
  const found = ["rule", "chain", "rule"].map(of);
  assertEquals(repairedObjects({ found, left: ["rule", "chain", "chain", "set"].map(of) }), [
    { object: "rule", found: 2, repaired: 1 },
    { object: "chain", found: 1, repaired: 0 },
  ]);
});

Deno.test("ChangeLog.repaired() makes one entry of repairs that follow each other", async () => {
  const clock = new FakeClock();
  const log = new ChangeLog({ clock });
  const texts = () =>
    log.recent().entries.map(({ family, lines }) => `${family} ${lines[0]!.text}`);
  const count = () => log.recent().entries.length;
  for (let count = 0; count < 1_000; count++) {
    log.repaired({ ...NOTE, pid: count + 1 });
    log.repaired({ ...NOTE, family: "IPv6", objects: [{ object: "rule", found: 1, repaired: 1 }] });
  }
  assertEquals(texts(), [
    "IPv4 REPAIR by 'kube-relay diff --repair' (user 0, process 1000), 1000 times: " +
    "2,000 of 3,000 map elements repaired",
    "IPv6 REPAIR by 'kube-relay diff --repair' (user 0, process 4711), 1000 times: " +
    "1,000 of 1,000 rules repaired",
  ]);
  log.repaired({ ...NOTE, uid: 1000, error: "nft: \x1b[2Jno" });
  assertEquals(count(), 3, "another user");
  const [, failed] = log.recent().entries.at(-1)!.lines;
  assertEquals(failed?.text, "FAILED, so that more may be written: nft: \\u001b[2Jno");
  log.configurationChanged([]);
  const { uid: _, ...anonymous } = { ...NOTE, objects: [] };
  log.repaired(anonymous);
  assertEquals(
    texts().at(-1),
    "IPv4 REPAIR by 'kube-relay diff --repair' (process 4711): no known difference was repaired",
  );
  for (let uid = 0; uid < 1_000; uid++) log.repaired({ ...NOTE, uid });
  assertEquals(count(), 4 + 8, "users may be made up");
  await clock.advance(60_001);
  log.repaired(NOTE);
  assertEquals(count(), 4 + 8 + 1, "a minute later");
});
