/** Adds to the entries of syncs which tracked UDP flows the kernel had to forget because of them. Pure. */
import type { IpFamily } from "../../net/ip_address.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ChangeEntry, CleanedFlows, SyncEntry } from "./change_entry.ts";
import { shortened } from "./change_text.ts";
import { MOST_NAMED } from "./pending_changes.ts";

/** One search for stale flows. */
export interface FlowCleaning {
  /** ServicePorts whose flows were searched. */
  readonly suspects: Iterable<ServicePortKey>;
  /** Number of removed flows by ServicePort. */
  readonly removed: ReadonlyMap<ServicePortKey, number>;
  /** Milliseconds. */
  readonly tookMs: number;
  /** The reason of the failure. The deletion will be retried. */
  readonly error?: string;
}

const LONGEST_REASON = 400;
const NOTHING: CleanedFlows = { services: [], more: 0, tookMs: 0, failures: 0 };

/** Returns the changed entries. */
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

/** Returns the newest sync that changed a ServicePort, or that may have, if it does not name all. */
function causesIn(
  entries: readonly ChangeEntry[],
  family: IpFamily,
): (key: ServicePortKey) => SyncEntry | undefined {
  const named = new Map<string, SyncEntry>();
  let rest: SyncEntry | undefined;
  for (const entry of entries.toReversed()) {
    if (entry.kind !== "sync" || entry.outcome !== "applied") continue;
    if (entry.family !== family || entry.controller !== undefined) continue;
    for (const { servicePort } of entry.effects) {
      if (servicePort !== undefined && !named.has(servicePort)) named.set(servicePort, entry);
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
  if (services.length >= MOST_NAMED) return { ...rest, services, more: more + count };
  return { ...rest, services: [...services, { servicePort, flows: count }], more };
}
