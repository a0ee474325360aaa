import { assertEquals } from "@std/assert";
import { statuszPage } from "./statusz_page.ts";

const START = Date.UTC(2026, 0, 1);

Deno.test("statuszPage() reports build, start and paths", () => {
  const { fields, lines } = statuszPage({
    startedAt: START + 250,
    now: START + 250 + ((26 * 60 + 3) * 60 + 9) * 1000 + 999,
    version: "0.1.0",
    release: "1.36",
    runtime: "deno 2.9.0",
    paths: ["/healthz", "/metrics"],
  });
  assertEquals(fields, {
    startTime: "2026-01-01T00:00:00Z",
    uptimeSeconds: 93_789,
    goVersion: "deno 2.9.0",
    binaryVersion: "0.1.0",
    emulationVersion: "1.36",
    paths: ["/healthz", "/metrics"],
  });
  assertEquals(lines, [
    "Started: 2026-01-01T00:00:00Z",
    "Up: 26 hr 03 min 09 sec",
    "Runtime: deno 2.9.0",
    "Binary version: 0.1.0",
    "Emulation version: 1.36",
    "Paths: /healthz /metrics",
  ]);
});

Deno.test("statuszPage() bears a clock that was set back", () => {
  const { fields } = statuszPage({
    startedAt: START,
    now: START - 5000,
    version: "",
    release: "",
    runtime: "",
    paths: [],
  });
  assertEquals(fields.uptimeSeconds, 0);
});
