import type { Clock } from "../../os/clock.ts";
import type { RunnerActivity } from "../../engine/sync_runner.ts";
import type { FamilyDifference } from "./node_difference.ts";

/** A loop, as far as a comparison must not meet its syncs. */
export interface ComparedLoop {
  readonly activity: Pick<RunnerActivity, "runningSince">;
  /** Another value after each sync. */
  readonly lastSync?: unknown;
}

/** Most comparisons while syncs change the machine. */
const MAX_LOOKS = 3;
/** Interval and number of checks whether a sync has ended. */
const SYNC_POLL_MS = 20;
const MOST_SYNC_POLLS = 250;

/** Waits for a running sync, compares, and compares again after a sync that ran meanwhile. */
export async function compareSettled(
  { clock }: { readonly clock: Pick<Clock, "sleep"> },
  loop: ComparedLoop,
  compare: () => Promise<FamilyDifference>,
): Promise<FamilyDifference> {
  for (let looks = 1;; looks++) {
    for (let polls = 0; isSyncing(loop) && polls < MOST_SYNC_POLLS; polls++) {
      await clock.sleep(SYNC_POLL_MS);
    }
    const { lastSync } = loop;
    const difference = await compare();
    const isSettled = !isSyncing(loop) && loop.lastSync === lastSync;
    if (isSettled || difference.differences.length === 0) return difference;
    if (looks === MAX_LOOKS) return { ...difference, isUnsettled: true };
  }
}

function isSyncing({ activity }: ComparedLoop): boolean {
  return activity.runningSince !== undefined;
}
