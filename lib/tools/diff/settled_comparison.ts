import type { Clock } from "../../os/clock.ts";
import type { LoopActivity } from "../../engine/controller.ts";
import { messageOf } from "../../log/message_of.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { type FamilyDifference, unrepaired } from "./node_difference.ts";

/** A loop, as far as a comparison must not meet its syncs. */
export interface ComparedLoop {
  readonly activity: LoopActivity;
  /** Another value after each sync. */
  readonly lastSync?: unknown;
}

/** Most comparisons while syncs change the machine. */
const MAX_LOOKS = 3;
/** Interval and number of checks whether a sync has ended. */
const SYNC_POLL_MS = 20;
const MOST_SYNC_POLLS = 250;

/** Waits for a running sync, compares, and compares again after a sync that ran meanwhile. */
export async function compareSettled<Found extends { readonly differences: readonly unknown[] }>(
  { clock }: { readonly clock: Pick<Clock, "sleep"> },
  loop: ComparedLoop,
  compare: () => Promise<Found>,
): Promise<Found & { readonly isUnsettled?: true }> {
  for (let looks = 1;; looks++) {
    await waitWhile(clock, () => isSyncing(loop));
    const { lastSync } = loop;
    const difference = await compare();
    const isSettled = !isSyncing(loop) && loop.lastSync === lastSync;
    if (isSettled || difference.differences.length === 0) return difference;
    if (looks === MAX_LOOKS) return { ...difference, isUnsettled: true };
  }
}

/** Compares, has the process write what differs, and compares again. Adds an entry to the change log. */
export async function repairSettled(
  { clock, changes }: {
    readonly clock: Pick<Clock, "now" | "sleep">;
    readonly changes: Pick<ChangeLog, "repaired">;
  },
  loop: ComparedLoop & { request(): void },
  compare: () => Promise<FamilyDifference>,
  /** Returns the operations by name. */
  repair: () => Promise<Readonly<Record<string, number>>>,
): Promise<FamilyDifference> {
  const before = await compareSettled({ clock }, loop, compare);
  const { differences: found } = before;
  if (found.length === 0) return { ...before, repair: { found, operations: {}, refused: [] } };
  const startedAt = clock.now();
  try {
    const operations = await repair();
    // What was left out is to be reported and tried again.
    loop.request();
    await waitWhile(clock, () => loop.activity.pendingSince !== undefined);
    const settled = await compareSettled({ clock }, loop, compare);
    const known = new Set(before.quarantined.map(({ key, address }) => `${key} ${address}`));
    // A shared object that differed, such as a table, may be of any.
    const differed = new Set<string | undefined>(found.map(({ key }) => key));
    const isShared = differed.has(undefined);
    const refused = new Set(
      settled.quarantined.filter(({ key, address }) => !known.has(`${key} ${address}`))
        .map(({ key }) => key).filter((key) => isShared || differed.has(key)),
    );
    const after = { ...settled, repair: { found, operations, refused: [...refused] } };
    changes.repaired(after, { found, left: unrepaired(after), tookMs: clock.now() - startedAt });
    return after;
  } catch (error) {
    // The other families are repaired nevertheless.
    const tookMs = clock.now() - startedAt;
    const reason = repairError(error);
    changes.repaired(before, { found, left: found, tookMs, error: reason });
    return { ...before, repair: { found, operations: {}, refused: [], error: reason } };
  }
}

/** A process may have rights to serve, and none to write rules or addresses. */
function repairError(error: unknown): string {
  const reason = messageOf(error);
  return reason.includes("Operation not permitted")
    ? `${reason}; the running kube-relay has no right to write it: it needs CAP_NET_ADMIN`
    : reason;
}

async function waitWhile(clock: Pick<Clock, "sleep">, isBusy: () => boolean): Promise<void> {
  for (let polls = 0; isBusy() && polls < MOST_SYNC_POLLS; polls++) {
    await clock.sleep(SYNC_POLL_MS);
  }
}

function isSyncing({ activity }: ComparedLoop): boolean {
  return activity.runningSince !== undefined;
}
