import { assert, assertEquals } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
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

Deno.test("renderWatch() says what it asks, and since when and why there is no answer", () => {
  assertEquals(rows(MODEL)[0], "Asking /run/a.sock");
  const reason = "no program listens there";
  const lost = unanswered(unanswered(MODEL, { reason: "a", at: NOW - 5000 }), { reason, at: NOW });
  const [first, second] = rows(lost);
  assertEquals(first, "kube-relay: not running since 11:59:55 (5s); continues when\u2026");
  assertEquals(second, reason);
});

Deno.test("renderWatch() fits every size and lets no text move the cursor", () => {
  const answer = { at: NOW, status: STATUS, changes: { entries: [], forgotten: 0, syncs: [] } };
  for (const [columns, height] of [[1, 1], [10, 3], [40, 8], [200, 60]] as const) {
    const lines = rows({ ...MODEL, answer }, { columns, rows: height });
    assertEquals(lines.length, height);
    for (const line of lines) {
      assert(/^[\x20-\x7e\u2026\u2581-\u2588]*$/.test(line), JSON.stringify(line));
      assert(line.length <= columns, `${line.length} > ${columns}`);
    }
  }
});

Deno.test("renderWatch() keeps problems, families, traffic and syncs above many manifest files", () => {
  const sources = Array.from({ length: 50 }, (_, index) => ({
    ...{ name: `/etc/m/${index}.yaml`, state: "2 objects", problems: [] },
  }));
  const quarantined = [{ key: "demo/web/TCP" as never, reason: "in use" }];
  const status = { ...STATUS, sources, families: [{ ...STATUS.families[0]!, quarantined }] };
  const times = [[0, "applied"], [5, "applied"], [1, "failed"], [10, "applied"]] as const;
  const syncs = times.map(([durationMs, outcome]) => ({
    ...{ family: "IPv4", at: 0, durationMs, outcome } as const,
  }));
  const changes = { entries: [], forgotten: 0, syncs };
  const before = { bytesFromClients: 1000, bytesToClients: 1000, opened: 10, open: 3 };
  const traffic = { bytesFromClients: 2000, bytesToClients: 4000, opened: 30, open: 4 };
  const model = [{ at: 0, traffic: before }, { at: 2000, traffic }].reduce(
    (model, { at, traffic }) => answered(model, { at, status: { ...status, traffic }, changes }),
    MODEL,
  );
  const text = rows(model, { columns: 100, rows: 20 }).join("\n");
  for (
    const part of [
      "demo/web/TCP: in use",
      "IPv4  nftables",
      "highest 10 ms",
      "  \u2581\u2585x\u2588",
      "Traffic  10 connections/s, 2.0 kB/s; 4 open, 30 in all, 2.0 kB in, 4.0 kB out",
      "Source   /etc/m/0.yaml: 2 objects, and 49 other sources\n",
    ]
  ) {
    assert(text.includes(part), `${part}\n${text}`);
  }
});
