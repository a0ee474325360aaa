/**
 * Merges syncs of one burst into one entry: a relist, a storm of changes, repeated attempts to bring
 * something out of quarantine.
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { ChangeEntry, HealthEntry, SyncEntry } from "./change_entry.ts";
import { shortened } from "./change_text.ts";

/** Longest gap between two syncs of one burst. */
const GAP_MS = 5000;
/** Longest burst in one entry. */
const LONGEST_MS = 60_000;

/** Merges two entries; `undefined` if the later one is an entry of its own. */
export function mergeBursts(
  earlier: SyncEntry,
  later: Omit<SyncEntry, "sequence">,
): Omit<SyncEntry, "sequence"> | undefined {
  const kind = burstKind(later);
  if (kind === undefined || kind !== burstKind(earlier)) return undefined;
  if (earlier.outcome !== "applied" || later.outcome !== "applied") return undefined;
  const gapMs = Date.parse(later.at) - later.totalMs - Date.parse(earlier.at);
  const totalMs = Math.max(0, gapMs) + earlier.totalMs + later.totalMs;
  if (kind === "many" && (gapMs > GAP_MS || totalMs > LONGEST_MS)) return undefined;
  return {
    ...later,
    ...(earlier.first && { first: true }),
    causes: earlier.causes,
    moreCauses: sum(
      sum(earlier.moreCauses, later.moreCauses),
      countsOf(later.causes, ({ kind: cause }) => cause),
    ),
    effects: earlier.effects,
    moreEffects: sum(
      sum(earlier.moreEffects, later.moreEffects),
      countsOf(later.effects, ({ action }) => action),
    ),
    syncs: earlier.syncs + later.syncs,
    operations: sum(earlier.operations, later.operations),
    queuedMs: earlier.queuedMs,
    planMs: earlier.planMs + later.planMs,
    applyMs: earlier.applyMs + later.applyMs,
    totalMs: kind === "many" ? totalMs : later.totalMs,
  };
}

function burstKind(
  { causes, moreCauses, effects, moreEffects }: Omit<SyncEntry, "sequence">,
): "many" | "none" | undefined {
  if (Object.keys(moreCauses).length > 0 || Object.keys(moreEffects).length > 0) return "many";
  return causes.length === 0 && effects.length === 0 ? "none" : undefined;
}

/** Changes of health in one entry; the newest ones say the most. */
const MOST_CHANGES = 8;
/** A reason may contain the answer of an endpoint. */
const LONGEST_REASON = 400;

/**
 * Returns the entry that changes of health continue: one of the same burst, with no entry of another
 * kind after it. `newest`: the log, newest entry first.
 */
export function healthToContinue(
  newest: readonly ChangeEntry[],
  { at, family }: { readonly at: string; readonly family: IpFamily },
): HealthEntry | undefined {
  for (const entry of newest) {
    const isRecent = Date.parse(at) - Date.parse(entry.at) <= GAP_MS;
    if (entry.kind !== "health" || !isRecent) return undefined;
    if (entry.family === family) return entry;
  }
  return undefined;
}

/** Merges changes of health with an earlier entry of the burst, if there is one. */
export function mergeHealth(
  earlier: HealthEntry | undefined,
  later: Omit<HealthEntry, "sequence">,
): Omit<HealthEntry, "sequence"> {
  const added = later.changes.map(({ servicePort, endpoint, state, reason }) => ({
    ...{ servicePort: shortened(servicePort), endpoint, state },
    ...(reason !== undefined && { reason: reason.slice(0, LONGEST_REASON) }),
  }));
  const all = [...earlier?.changes ?? [], ...added];
  const changes = all.slice(-MOST_CHANGES);
  return { ...later, changes, more: (earlier?.more ?? 0) + all.length - changes.length };
}

type Counts = Readonly<Record<string, number>>;

/** Adds numbers by name. */
export function sum(left: Counts, right: Counts): Counts {
  const total: Record<string, number> = { ...left };
  for (const [key, count] of Object.entries(right)) total[key] = (total[key] ?? 0) + count;
  return total;
}

/** Counts items by name. */
export function countsOf<Item>(items: readonly Item[], keyOf: (item: Item) => string): Counts {
  const total: Record<string, number> = {};
  for (const item of items) total[keyOf(item)] = (total[keyOf(item)] ?? 0) + 1;
  return total;
}
