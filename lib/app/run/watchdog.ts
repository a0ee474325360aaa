/**
 * Whether the watchdog may be fed: a pure decision on what the runners are doing.
 *
 * @module
 */
import type { RunnerActivity } from "../../sync/sync_runner.ts";

/** How long a sync may take. */
interface WatchdogOptions {
  /** Longest time for a run in flight. */
  readonly runDeadlineMs: number;
  /** Longest time for which a request may wait while no run is in flight. */
  readonly pendingDeadlineMs: number;
}

/**
 * Feeds while the event loop turns (this function is called at all) and nothing is overdue: a quiet
 * hour is healthy, a run that never ends is not, and neither is a request that never gets its run.
 * Failing syncs are no reason to be killed: a restart would not mend them.
 */
export function mayFeedWatchdog(
  activities: readonly RunnerActivity[],
  { now, runDeadlineMs, pendingDeadlineMs }: WatchdogOptions & { readonly now: number },
): boolean {
  return activities.every(({ runningSince, pendingSince }) => {
    if (runningSince !== undefined) return now - runningSince < runDeadlineMs;
    return pendingSince === undefined || now - pendingSince < pendingDeadlineMs;
  });
}
