import { assert, assertEquals } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";
import { answered, renderWatch, unanswered, type WatchModel } from "./watch_view.ts";

const NOW = Date.UTC(2026, 0, 1, 12);
const MODEL: WatchModel = { socket: "/run/a.sock", filter: "", scrolledBy: 0 };

const STATUS = testStatusReport({
  startedAt: new Date(NOW - 60_000).toISOString(),
  node: { name: "node-a\x1b[2J" },
  sources: [{ name: "API server", state: "watching", problems: ["\u8b66\u544a".repeat(80)] }],
  families: [
    testStatusFamily({
      mode: "nftables",
      pending: true,
      failures: 2,
      lastError: "line 3: no such table",
    }),
  ],
});

function rows(model: WatchModel, size = { columns: 60, rows: 12 }): readonly string[] {
  return renderWatch(model, { size, now: NOW, timeZone: "UTC" });
}

Deno.test("renderWatch() shows before the first answer which process it asks, and why there is no answer", () => {
  assertEquals(rows(MODEL)[0], "Asking /run/a.sock");
  const lost = { since: NOW - 5000, reason: "no program listens there" };
  const [first, second] = rows({ ...MODEL, lost });
  assertEquals(first, "kube-relay: not running since 11:59:55 (5s); continues when\u2026");
  assertEquals(second, "no program listens there");
});

Deno.test("renderWatch() fits every size and lets no text move the cursor", () => {
  const answer = { at: NOW, status: STATUS, changes: { entries: [], forgotten: 0, syncs: [] } };
  for (const size of [[1, 1], [10, 3], [40, 8], [200, 60]] as const) {
    const [columns, height] = size;
    const lines = rows({ ...MODEL, answer }, { columns, rows: height });
    assertEquals(lines.length, height);
    for (const line of lines) {
      assert(/^[\x20-\x7e\u2026\u2581-\u2588]*$/.test(line), JSON.stringify(line));
      assert(line.length <= columns, `${line.length} > ${columns}`);
    }
  }
});

Deno.test("renderWatch() draws each sync in proportion to the highest, and marks failures", () => {
  const times = [[0, "applied"], [5, "applied"], [1, "failed"], [10, "applied"]] as const;
  const syncs = times.map(([durationMs, outcome]) => ({
    ...{ family: "IPv4", at: 0, durationMs, outcome } as const,
  }));
  const answer = { at: NOW, status: STATUS, changes: { entries: [], forgotten: 0, syncs } };
  const text = rows({ ...MODEL, answer }, { columns: 100, rows: 20 }).join("\n");
  assert(text.includes("highest 10 ms"), text);
  assert(text.includes("  \u2581\u2585x\u2588"), text);
});

Deno.test("answered() measures the traffic since the answer before", () => {
  const traffic = { bytesFromClients: 1000, bytesToClients: 1000, opened: 10, open: 3 };
  const later = { bytesFromClients: 2000, bytesToClients: 4000, opened: 30, open: 4 };
  const answerAt = (at: number, traffic: TrafficFigures) => ({
    ...{ at, status: { ...STATUS, traffic } },
    changes: { entries: [], forgotten: 0, syncs: [] },
  });
  const model = answered(answered(MODEL, answerAt(0, traffic)), answerAt(2000, later));
  assert(
    rows(model, { columns: 100, rows: 20 }).includes(
      "Traffic  10 connections/s, 2.0 kB/s; 4 open, 30 in all, 2.0 kB in, 4.0 kB out",
    ),
  );
});

Deno.test("renderWatch() keeps problems and families above many manifest files", () => {
  const sources = Array.from({ length: 50 }, (_, index) => ({
    ...{ name: `/etc/m/${index}.yaml`, state: "2 objects", problems: [] },
  }));
  const [family] = STATUS.families;
  const quarantined = [{ key: "demo/web/TCP" as never, reason: "in use" }];
  const status = { ...STATUS, sources, families: [{ ...family!, quarantined }] };
  const answer = { at: NOW, status, changes: { entries: [], forgotten: 0, syncs: [] } };
  const text = rows({ ...MODEL, answer }, { columns: 100, rows: 20 }).join("\n");
  for (
    const part of [
      "demo/web/TCP: in use",
      "IPv4  nftables",
      "Source  /etc/m/0.yaml: 2 objects, and 49 other sources\n",
    ]
  ) {
    assert(text.includes(part), `${part}\n${text}`);
  }
});

Deno.test("unanswered() counts from the first time", () => {
  const first = unanswered(MODEL, { reason: "a", at: 5 });
  assertEquals(unanswered(first, { reason: "b", at: 9 }).lost, { since: 5, reason: "b" });
});
