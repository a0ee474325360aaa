/**
 * Finds the syncs after which UDP flows had to be forgotten, and adds that to their entries. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ChangeEntry, CleanedFlows, SyncEntry } from "./change_entry.ts";
import { shortened } from "./change_parts.ts";
import { MOST_EFFECTS } from "./pending_effects.ts";

/** One look for stale flows. */
export interface FlowCleaning {
  /** Whose flows were looked for. */
  readonly suspects: Iterable<ServicePortKey>;
  /** How many the kernel was made to forget, by whose they were. */
  readonly removed: ReadonlyMap<ServicePortKey, number>;
  /** Milliseconds. */
  readonly tookMs: number;
  /** Why it failed; it is tried again. */
  readonly error?: string;
}

const LONGEST_REASON = 400;
const NOTHING: CleanedFlows = { services: [], more: 0, tookMs: 0, failures: 0 };

/** The entries that are different by it, oldest first; those without anything to tell stay as they are. */
export function withCleanedFlows(
  entries: readonly ChangeEntry[],
  family: IpFamily,
  { suspects, removed, tookMs, error }: FlowCleaning,
): readonly SyncEntry[] {
  const causeOf = causesIn(entries, family);
  const changed = new Map<SyncEntry, CleanedFlows>();
  const flowsOf = (entry: SyncEntry) => changed.get(entry) ?? entry.flows ?? NOTHING;
  for (const key of suspects) {
    const entry = causeOf(key);
    if (entry === undefined || changed.has(entry)) continue;
    const { error: before, ...rest } = flowsOf(entry);
    if (error !== undefined) {
      const failures = rest.failures + 1;
      changed.set(entry, { ...rest, failures, error: error.slice(0, LONGEST_REASON) });
    } else if (before !== undefined) changed.set(entry, rest);
  }
  for (const [key, count] of removed) {
    const entry = causeOf(key);
    if (entry) changed.set(entry, withService(flowsOf(entry), shortened(key), count));
  }
  return [...changed].map(([entry, flows]) => ({
    ...entry,
    flows: { ...flows, tookMs: Math.round((flows.tookMs + tookMs) * 10) / 10 },
  }));
}

/** Tells the newest sync that changed a ServicePort, or may have where not all are named. */
function causesIn(
  entries: readonly ChangeEntry[],
  family: IpFamily,
): (key: ServicePortKey) => SyncEntry | undefined {
  const named = new Map<string, SyncEntry>();
  let rest: SyncEntry | undefined;
  for (const entry of entries.toReversed()) {
    if (entry.kind !== "sync" || entry.family !== family || entry.outcome !== "applied") continue;
    for (const { servicePort } of entry.effects) {
      if (!named.has(servicePort)) named.set(servicePort, entry);
    }
    if (Object.keys(entry.moreEffects).length === 0) continue;
    rest = entry;
    break;
  }
  return (key) => named.get(shortened(key)) ?? rest;
}

function withService(
  { services, more, ...rest }: CleanedFlows,
  servicePort: string,
  count: number,
): CleanedFlows {
  const known = services.find((each) => each.servicePort === servicePort);
  if (known) {
    const others = services.filter((each) => each !== known);
    return { ...rest, services: [...others, { servicePort, flows: known.flows + count }], more };
  }
  if (services.length >= MOST_EFFECTS) return { ...rest, services, more: more + count };
  return { ...rest, services: [...services, { servicePort, flows: count }], more };
}
