import type { SyncReport } from "../../../lib/engine/data_plane.ts";
import { SyncLoop, type SyncOutcome, type SyncPeriods } from "../../../lib/engine/sync_loop.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

/** The loop of a data plane whose syncs end as a function says. */
export function timedLoop(
  clock: Clock,
  periods: SyncPeriods,
  run: () => Promise<SyncOutcome>,
): SyncLoop<undefined, object, string, SyncReport<string>> {
  return new SyncLoop({ clock, logger: new MemoryLogger(), listeners: [] }, {
    id: { controller: "routing", family: "IPv4" },
    dataPlane: {
      start: () => Promise.resolve(),
      async sync() {
        const outcome = await run();
        if (outcome === "retry") throw new Error("broken");
        return {
          full: true,
          operations: outcome === "unchanged" ? {} : { rules: 1 },
          quarantined: [],
          ...(outcome === "unfinished" && { isUnfinished: true as const }),
        };
      },
    },
    source: {
      plan: undefined,
      pending: false,
      collectChanges: () => Promise.resolve({ changes: {}, problems: [] }),
    },
    texts: { synced: "synced", failed: "failed", quarantined: "q", released: "r", item: "i" },
    periods,
  });
}
