import { assertEquals } from "@std/assert";
import { timedLoop } from "../../tests/support/builders/timed_loop.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import type { SyncReport } from "./data_plane.ts";
import { SyncLoop, type SyncOutcome } from "./sync_loop.ts";

/** The step for which no file descriptor is left, in the order of a sync. */
type Step = "planning" | "preparing" | "syncing" | "syncing at once";

const DONE: SyncReport<string> = { operations: { rules: 1 }, quarantined: [], full: true };

/** Starts a loop whose syncs fail at one step while no file can be opened. */
function startLoop(step: Step) {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const files = { areLeft: false };
  const open = (at: Step) => {
    if (at === step && !files.areLeft) throw new Error("Too many open files (os error 24)");
  };
  const loop = new SyncLoop<string, Record<never, never>, string, SyncReport<string>>(
    { clock, logger, listeners: [] },
    {
      id: { controller: "routing", family: "IPv4" },
      dataPlane: {
        start: () => Promise.resolve(),
        sync() {
          open("syncing at once");
          return Promise.resolve().then(() => open("syncing")).then(() => DONE);
        },
      },
      source: {
        plan: "plan",
        pending: false,
        collectChanges: () =>
          Promise.resolve().then(() => open("planning")).then(() => ({
            changes: {},
            problems: [],
          })),
      },
      listeners: [{
        on: ({ kind }) =>
          kind === "syncing" ? Promise.resolve().then(() => open("preparing")) : undefined,
      }],
      texts: { synced: "synced", failed: "failed", quarantined: "q", released: "r", item: "i" },
      periods: { minPeriodMs: 0, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    },
  );
  loop.open();
  return { clock, logger, files, loop };
}

for (const step of ["planning", "preparing", "syncing", "syncing at once"] as const) {
  Deno.test(`SyncLoop reports each sync that finds no file to open while ${step}, and succeeds later`, async () => {
    const { clock, logger, files, loop } = startLoop(step);
    await clock.advance(400);
    const { failures, lastError } = loop.status("");
    assertEquals([failures, lastError], [3, "Too many open files (os error 24)"]);
    assertEquals(logger.lines.map(({ level }) => level), ["error", "error", "error"]);
    files.areLeft = true;
    await clock.advance(200);
    assertEquals([loop.status("").failures, loop.lastSync?.report], [0, DONE]);
    await loop.stop();
    assertEquals(clock.pendingTimers, 0);
  });
}

Deno.test("SyncLoop runs again at once after a report that more is to be written", async () => {
  const clock = new FakeClock();
  const outcomes: SyncOutcome[] = ["unfinished", "unfinished", "done"];
  const at: number[] = [];
  const pending: boolean[] = [];
  const periods = { minPeriodMs: 1_000, burst: 1, maxPeriodMs: 3_600_000, retryMs: () => 200 };
  const loop = timedLoop(clock, periods, () => {
    at.push(clock.now());
    pending.push(loop.status("").pending);
    return Promise.resolve(outcomes.shift() ?? "done");
  });
  loop.open();
  await clock.advance(0);
  assertEquals(at, [0, 0, 0]);
  assertEquals([...pending, loop.status("").pending], [false, true, true, false]);
  // The one token was for all of them.
  loop.request();
  await clock.advance(999);
  assertEquals(at.length, 3);
  await clock.advance(1);
  assertEquals(at, [0, 0, 0, 1_000]);
  await loop.stop();
});
