import { assertEquals } from "@std/assert";
import type { KubeEvent } from "./event.ts";
import { nodeRegarding } from "./event.ts";
import { EventSeriesTable, SERIES_IDLE_MS, SERIES_REFRESH_MS } from "./event_series.ts";

const EVENT: KubeEvent = {
  type: "Warning",
  reason: "FailedToStart",
  action: "Listen",
  note: "port 80 is taken",
  regarding: nodeRegarding("node-a"),
};

Deno.test("EventSeriesTable.add() reports the first event and the second, and counts the others", () => {
  const table = new EventSeriesTable();
  assertEquals(table.add(EVENT, 1)?.count, 1);
  assertEquals(table.add({ ...EVENT }, 2)?.count, 2);
  assertEquals(table.add(EVENT, 3), undefined);
  assertEquals(table.size, 1);
});

for (
  const [what, other] of [
    ["type", { type: "Normal" }],
    ["reason", { reason: "Other" }],
    ["action", { action: "Other" }],
    ["note", { note: "port 81 is taken" }],
    ["object", { regarding: nodeRegarding("node-b") }],
  ] as const
) {
  Deno.test(`EventSeriesTable.add() treats an event with another ${what} as another series`, () => {
    const table = new EventSeriesTable();
    table.add(EVENT, 1);
    assertEquals(table.add({ ...EVENT, ...other }, 2)?.count, 1);
  });
}

Deno.test("EventSeriesTable.sweep() closes idle series, and reports unsent counts", () => {
  const table = new EventSeriesTable();
  const series = table.add(EVENT, 0)!;
  series.sentCount = 1;
  table.add({ ...EVENT, note: "sent" }, 0)!.sentCount = 1;
  table.add(EVENT, 10);
  assertEquals(table.sweep(SERIES_IDLE_MS - 1), []);
  assertEquals(table.sweep(SERIES_IDLE_MS), []);
  assertEquals(table.size, 1);
  assertEquals(table.sweep(SERIES_IDLE_MS + 10), [series]);
  assertEquals(table.size, 0);
});

Deno.test("EventSeriesTable.sweep() reports an ongoing series every 30 min", () => {
  const table = new EventSeriesTable();
  const series = table.add(EVENT, 0)!;
  table.add(EVENT, 1);
  series.sentCount = 2;
  for (let now = 60_000; now < SERIES_REFRESH_MS; now += 60_000) {
    table.add(EVENT, now);
    assertEquals(table.sweep(now), []);
  }
  assertEquals(table.sweep(SERIES_REFRESH_MS), [series]);
});
