import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { SyncTime } from "../../changes/change_entry.ts";
import { syncPlot } from "./sync_plot.ts";

const SAMPLE: SyncTime = { family: "IPv4", at: 1_000_000, durationMs: 10, outcome: "applied" };

function drawn(samples: readonly SyncTime[]): string {
  return String(syncPlot(samples));
}

Deno.test("syncPlot() reports it if there is nothing to draw", () => {
  assertStringIncludes(drawn([]), "no sync yet");
});

Deno.test("syncPlot() describes its content in words", () => {
  const plot = drawn([
    SAMPLE,
    { ...SAMPLE, at: 1_001_000, durationMs: 4 },
    { ...SAMPLE, at: 1_002_000, durationMs: 2500, outcome: "failed" },
  ]);
  assertStringIncludes(plot, "The last 3 syncs: 10 ms at the median, 2.5 s at most, 1 failed.");
  assertMatch(plot, /<desc[^>]*>The last 3 syncs/);
});

Deno.test("syncPlot() formats times like the change log, and labels its axis in round numbers", () => {
  const plot = drawn([{ ...SAMPLE, durationMs: 12.44 }, { ...SAMPLE, durationMs: 252_000 }]);
  assertStringIncludes(plot, "The last 2 syncs: 4m12s at the median, 4m12s at most, none failed.");
  assertStringIncludes(drawn([{ ...SAMPLE, durationMs: 12.44 }]), "1 sync: 12 ms at the median");
  const labels = [...plot.matchAll(/class="axis end" x="58"[^>]*>([^<]*)</g)].map(([, text]) =>
    text
  );
  assertEquals(labels, ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
});

Deno.test("syncPlot() has a shape of its own for each family and for failures", () => {
  const marks = (sample: SyncTime) => /role="img"[\s\S]*?<\/svg>/.exec(drawn([sample]))![0];
  assertMatch(marks(SAMPLE), /<circle/);
  assertMatch(marks({ ...SAMPLE, family: "IPv6" }), /<rect/);
  assertMatch(marks({ ...SAMPLE, outcome: "failed" }), /<path/);
});

Deno.test("syncPlot() keeps every mark within the picture", () => {
  const samples = [0, 0.01, 1, 99_999_999].map((durationMs, index) => ({
    ...SAMPLE,
    durationMs,
    at: index * 1000,
  }));
  const heights = [...drawn(samples).matchAll(/<circle[^>]* cy="([\d.-]+)"/g)].map(([, y]) =>
    Number(y)
  );
  // The legend has one as well.
  assertEquals(heights.length, samples.length + 1);
  assertEquals(heights.filter((y) => y < 0 || y > 180), []);
});
