/**
 * Merges syncs of one burst into one entry: a relist, a storm of changes, repeated attempts to bring
 * something out of quarantine.
 */
import type { SyncEntry } from "./change_entry.ts";

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
