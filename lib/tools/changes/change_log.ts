import type { FlowCleaning } from "../../app/change_listener.ts";
import { type LoopId, otherController } from "../../engine/loop_id.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { EndpointHealthChange } from "../../proxy/service_mode.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type {
  ChangeEntry,
  ChangesReport,
  CleanedFlows,
  DriftEntry,
  EntryLoop,
  SyncEntry,
  SyncTime,
} from "./change_entry.ts";
import { shortened } from "./change_text.ts";
import { healthToContinue, mergeHealth } from "./merge_bursts.ts";
import { MOST_NAMED } from "./pending_changes.ts";
import { entryToContinue, mergedRepairs, type RepairNote } from "./repair_note.ts";

/** Adds to the entries of syncs which tracked UDP flows the kernel had to forget because of them. Pure. */

const LONGEST_REASON = 400;
const NOTHING: CleanedFlows = { services: [], more: 0, tookMs: 0, failures: 0 };

/** Returns the changed entries. */
function withCleanedFlows(
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

interface ChangeLogBounds {
  /** @default {500} */
  readonly entries?: number;
  /** Memory of the entries, estimated. @default {1 MiB} */
  readonly bytes?: number;
}

/** Number of syncs whose duration is kept. */
const MOST_SYNCS = 120;

/** Omits fields of each member of a union. */
type Without<Entry, Fields extends PropertyKey> = Entry extends unknown ? Omit<Entry, Fields>
  : never;

type NewEntry = Without<ChangeEntry, "sequence">;

interface Kept {
  entry: ChangeEntry;
  bytes: number;
}

/** The last changes in memory, within bounds; the oldest are forgotten first. */
export class ChangeLog {
  protected readonly clock: Clock;
  readonly #bounds: Required<ChangeLogBounds>;
  readonly #kept: Kept[] = [];
  readonly #syncs: SyncTime[] = [];
  #bytes = 0;
  #sequence = 0;
  #forgotten = 0;

  constructor({ clock }: { readonly clock: Clock }, bounds: ChangeLogBounds = {}) {
    this.clock = clock;
    this.#bounds = { entries: 500, bytes: 2 ** 20, ...bounds };
  }

  /** Estimated memory of the entries. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the newest entries, or all, oldest first. */
  recent(most = Infinity): ChangesReport {
    const kept = most === Infinity ? this.#kept : this.#kept.slice(-most || this.#kept.length);
    return {
      entries: kept.map(({ entry }) => entry),
      forgotten: this.#forgotten,
      syncs: [...this.#syncs],
    };
  }

  /** Adds an entry, which gets the next sequence number. */
  add(entry: NewEntry): ChangeEntry {
    const numbered = { ...entry, sequence: ++this.#sequence };
    const bytes = sizeOf(numbered);
    this.#kept.push({ entry: numbered, bytes });
    this.#bytes += bytes;
    this.#forget();
    return numbered;
  }

  /** Replaces an entry; adds it again if it has been forgotten. */
  replace(sequence: number, entry: NewEntry): ChangeEntry {
    const place = this.#kept.findLast((kept) => kept.entry.sequence === sequence);
    if (!place) return this.add(entry);
    this.#bytes -= place.bytes;
    const { entry: before } = place;
    // The recorder of syncs does not know the flows removed after a sync.
    const hasFlows = before.kind === "sync" && entry.kind === "sync" && before.flows;
    place.entry = { ...(hasFlows ? { flows: before.flows, ...entry } : entry), sequence };
    place.bytes = sizeOf(place.entry);
    this.#bytes += place.bytes;
    this.#forget();
    return place.entry;
  }

  /** Adds the duration of a sync. */
  timed(sync: SyncTime): void {
    this.#syncs.push(sync);
    if (this.#syncs.length > MOST_SYNCS) this.#syncs.shift();
  }

  /** Adds drift. Repeated drift of the same kind becomes one entry. */
  driftFound(
    { controller, family }: LoopId,
    { kind: object, found, repaired }: Omit<DriftFigures, "kind"> & { readonly kind: string },
  ): void {
    if (found === 0) return;
    const last = this.#kept.at(-1)?.entry;
    const at = this.#now();
    const entry: Omit<DriftEntry, "sequence"> = {
      ...{ kind: "drift", at, ...otherController({ controller }), family, object },
      ...{ found, repaired, times: 1 },
    };
    const isSame = last?.kind === "drift" && last.object === object && isOfLoop(last, entry);
    if (!isSame) {
      this.add(entry);
      return;
    }
    this.replace(last.sequence, {
      ...entry,
      found: last.found + found,
      repaired: last.repaired + repaired,
      times: last.times + 1,
    });
  }

  /** Adds the removal of UDP flows to the entries of the syncs that made them stale. */
  flowsCleaned(family: IpFamily, cleaning: FlowCleaning): void {
    const entries = this.#kept.map(({ entry }) => entry);
    for (const { sequence, ...entry } of withCleanedFlows(entries, family, cleaning)) {
      this.replace(sequence, entry);
    }
  }

  /** Adds a run of `diff --repair`. Successive runs of one user become one entry. */
  repaired(note: RepairNote): void {
    const entry = { kind: "repair", at: this.#now(), ...note, times: 1 } as const;
    const newest = this.#kept.map((kept) => kept.entry).reverse();
    const earlier = entryToContinue(newest, entry);
    if (earlier) this.replace(earlier.sequence, mergedRepairs(earlier, entry));
    else this.add(entry);
  }

  /** Adds changes of the health of endpoints. Those of one burst become one entry. */
  healthChanged(family: IpFamily, changes: readonly EndpointHealthChange[]): void {
    const at = this.#now();
    const newest = this.#kept.map((kept) => kept.entry).reverse();
    const earlier = healthToContinue(newest, { at, family });
    const entry = mergeHealth(earlier, { kind: "health", at, family, changes, more: 0 });
    if (earlier) this.replace(earlier.sequence, entry);
    else this.add(entry);
  }

  /** Adds changed fields of the configuration, without their values, which may be secret. */
  configurationChanged(fields: readonly string[]): void {
    this.add({ kind: "configuration", at: this.#now(), fields });
  }

  #now(): string {
    return new Date(this.clock.wallNow()).toISOString();
  }

  #forget(): void {
    const { entries, bytes } = this.#bounds;
    while (this.#kept.length > 1 && (this.#kept.length > entries || this.#bytes > bytes)) {
      this.#bytes -= this.#kept.shift()!.bytes;
      this.#forgotten++;
    }
  }
}

/** Whether two entries are about the same loop. */
function isOfLoop(entry: EntryLoop, other: EntryLoop): boolean {
  return entry.family === other.family && entry.controller === other.controller;
}

/** Two bytes for each character of the text form, and as much again for the objects around it. */
function sizeOf(entry: ChangeEntry): number {
  return 4 * JSON.stringify(entry).length;
}
