import { assertEquals } from "@std/assert";
import { serviceLoop } from "../../tests/support/builders/builders.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import type { SyncReport } from "../engine/data_plane.ts";
import { SyncLoop } from "../engine/sync_loop.ts";
import { ProxyHealth } from "./proxy_health.ts";

const TIMEOUT_MS = 10_000;
const START = Date.UTC(2026, 0, 1);

function createHealth(): { readonly clock: FakeClock; readonly health: ProxyHealth } {
  const clock = new FakeClock(START);
  return { clock, health: new ProxyHealth({ clock }, { timeoutMs: TIMEOUT_MS }) };
}

Deno.test("ProxyHealth counts from the oldest request that waits", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.stall(9000);
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.stall(1000);
  assertEquals(health.healthy(), false);
});

Deno.test("ProxyHealth does not count a jump of the time of day as a delay, and reports the new time", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "started", loop: serviceLoop("IPv4") });
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.jump(3_600_000);
  assertEquals([...health.loops()], [["IPv4", { lastUpdated: START, healthy: true }]]);
  clock.jump(-7_200_000);
  clock.stall(TIMEOUT_MS);
  assertEquals(health.healthy(), false);
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  const lastUpdated = START - 3_600_000 + TIMEOUT_MS;
  assertEquals([...health.loops()], [["IPv4", { lastUpdated, healthy: true }]]);
});

/** The steps of a sync that may hang. */
type Step = "planning" | "preparing" | "syncing";

/** The report of the first sync, by why the second one runs. */
const AGAIN: Readonly<Record<string, Partial<SyncReport<string>>>> = {
  "that is periodic": {},
  "after a quarantine": { quarantined: [{ key: "a/b", reason: "refused" }] },
  "that continues an unfinished one": { isUnfinished: true },
};

/** Starts a loop whose first sync ends with `end`; the second one hangs at a step. */
async function startHangingLoop(step: Step) {
  const { clock, health } = createHealth();
  const first = Promise.withResolvers<SyncReport<string>>();
  let syncs = 0;
  const at = (each: Step) => syncs > 1 && each === step ? new Promise<never>(() => {}) : undefined;
  const loop = new SyncLoop<undefined, object, string, SyncReport<string>>(
    { clock, logger: new MemoryLogger(), listeners: [health] },
    {
      id: serviceLoop("IPv4"),
      dataPlane: {
        start: () => Promise.resolve(),
        sync: () => at("syncing") ?? first.promise,
      },
      source: {
        plan: undefined,
        pending: false,
        collectChanges() {
          syncs++;
          return at("planning") ?? Promise.resolve({ changes: {}, problems: [] });
        },
      },
      listeners: [{ on: ({ kind }) => kind === "syncing" ? at("preparing") : undefined }],
      texts: { synced: "synced", failed: "failed", quarantined: "q", released: "r", item: "i" },
      periods: { minPeriodMs: 1_000, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    },
  );
  await loop.start();
  loop.open();
  await clock.advance(0);
  const end = (report: Partial<SyncReport<string>> = {}) =>
    first.resolve({ full: true, operations: { rules: 1 }, quarantined: [], ...report });
  return { clock, health, loop, end };
}

for (const step of ["planning", "preparing", "syncing"] as const) {
  Deno.test(`ProxyHealth turns unhealthy if a sync hangs while ${step} that was requested during the sync before it`, async () => {
    const { clock, health, loop, end } = await startHangingLoop(step);
    loop.request();
    end();
    await clock.advance(TIMEOUT_MS - 1);
    assertEquals(health.healthy(), true);
    await clock.advance(1_001);
    assertEquals(health.healthy(), false);
  });
}

for (const [name, report] of Object.entries(AGAIN)) {
  Deno.test(`ProxyHealth turns unhealthy if a sync hangs ${name}`, async () => {
    const { clock, health, end } = await startHangingLoop("syncing");
    end(report);
    await clock.advance(3_600_000 + TIMEOUT_MS);
    assertEquals(health.healthy(), false);
  });
}
