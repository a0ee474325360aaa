import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import type { SyncReport } from "./data_plane.ts";
import { SyncLoop } from "./sync_loop.ts";

/** What no file is left for, in the order of a sync. */
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
    { clock, logger },
    {
      dataPlane: {
        sync() {
          open("syncing at once");
          return Promise.resolve().then(() => open("syncing")).then(() => DONE);
        },
      },
      planner: {
        plan: "plan",
        collectChanges: () =>
          Promise.resolve().then(() => open("planning")).then(() => ({
            changes: {},
            problems: [],
          })),
      },
      follower: {
        syncing: () => Promise.resolve().then(() => open("preparing")),
        synced: () => [],
        failed: () => {},
        finished: () => {},
      },
      texts: { synced: "synced", failed: "failed", quarantined: "q", released: "r", item: "i" },
      runner: { minPeriodMs: 0, maxPeriodMs: 3_600_000, retryMs: () => 200 },
    },
  );
  loop.start();
  loop.request();
  return { clock, logger, files, loop };
}

for (const step of ["planning", "preparing", "syncing", "syncing at once"] as const) {
  Deno.test(`SyncLoop reports each sync that finds no file to open while ${step}, and succeeds later`, async () => {
    const { clock, logger, files, loop } = startLoop(step);
    await clock.advance(400);
    assertEquals(loop.failure, { count: 3, error: "Too many open files (os error 24)" });
    assertEquals(logger.lines.map(({ level }) => level), ["error", "error", "error"]);
    files.areLeft = true;
    await clock.advance(200);
    assertEquals([loop.failure, loop.lastSync?.report], [{ count: 0 }, DONE]);
    await loop.stop();
    assertEquals(clock.pendingTimers, 0);
  });
}
