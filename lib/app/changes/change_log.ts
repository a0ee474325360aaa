/**
 * The last changes, in memory: what was changed, what came of it, and how long it took.
 *
 * @module
 */
import type { DriftFigures } from "../../metrics/sync_instruments.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { ChangeEntry, ChangesReport, DriftEntry, SyncTime } from "./change_entry.ts";
import { type FlowCleaning, withCleanedFlows } from "./cleaned_flows.ts";
import { entryToContinue, mergedRepairs, type RepairNote } from "./repair_note.ts";

/** How much is kept. */
interface ChangeLogBounds {
  /** @default {500} */
  readonly entries?: number;
  /** Memory for their texts, about. @default {1 MiB} */
  readonly bytes?: number;
}

/** Syncs of which the duration is kept. */
const MOST_SYNCS = 120;

/** A union of objects, each without some fields. */
type Without<Entry, Fields extends PropertyKey> = Entry extends unknown ? Omit<Entry, Fields>
  : never;

/** An entry that has no number yet. */
type NewEntry = Without<ChangeEntry, "sequence">;

/** An entry and what it takes. */
interface Kept {
  entry: ChangeEntry;
  bytes: number;
}

/** Entries, the newest last; the oldest are forgotten first. */
export class ChangeLog {
  readonly #clock: Clock;
  readonly #bounds: Required<ChangeLogBounds>;
  readonly #kept: Kept[] = [];
  readonly #syncs: SyncTime[] = [];
  #bytes = 0;
  #sequence = 0;
  #forgotten = 0;

  constructor({ clock }: { readonly clock: Clock }, bounds: ChangeLogBounds = {}) {
    this.#clock = clock;
    this.#bounds = { entries: 500, bytes: 2 ** 20, ...bounds };
  }

  /** About what the entries take. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The newest entries, oldest first; without a number all that are kept. */
  recent(most = Infinity): ChangesReport {
    const kept = most === Infinity ? this.#kept : this.#kept.slice(-most || this.#kept.length);
    return {
      entries: kept.map(({ entry }) => entry),
      forgotten: this.#forgotten,
      syncs: [...this.#syncs],
    };
  }

  /** Adds an entry and gives it its number. */
  add(entry: NewEntry): ChangeEntry {
    const numbered = { ...entry, sequence: ++this.#sequence };
    const bytes = sizeOf(numbered);
    this.#kept.push({ entry: numbered, bytes });
    this.#bytes += bytes;
    this.#forget();
    return numbered;
  }

  /** Puts another state of an entry in its place; one that is forgotten comes again as a new one. */
  replace(sequence: number, entry: NewEntry): ChangeEntry {
    const place = this.#kept.findLast((kept) => kept.entry.sequence === sequence);
    if (!place) return this.add(entry);
    this.#bytes -= place.bytes;
    const { entry: before } = place;
    // What came after a sync is not known to who follows the syncs.
    const hasFlows = before.kind === "sync" && entry.kind === "sync" && before.flows;
    place.entry = { ...(hasFlows ? { flows: before.flows, ...entry } : entry), sequence };
    place.bytes = sizeOf(place.entry);
    this.#bytes += place.bytes;
    this.#forget();
    return place.entry;
  }

  /** Takes how long a sync took. */
  timed(sync: SyncTime): void {
    this.#syncs.push(sync);
    if (this.#syncs.length > MOST_SYNCS) this.#syncs.shift();
  }

  /** Something of ours was missing or altered. The same once more in a row is one entry. */
  driftFound(family: IpFamily, { kind: object, found, repaired }: DriftFigures): void {
    if (found === 0) return;
    const last = this.#kept.at(-1)?.entry;
    const at = this.#now();
    const entry: Omit<DriftEntry, "sequence"> = {
      ...{ kind: "drift", at, family, object, found, repaired, times: 1 },
    };
    if (last?.kind !== "drift" || last.family !== family || last.object !== object) {
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

  /** UDP flows were looked for after syncs: that goes into the entries of these. */
  flowsCleaned(family: IpFamily, cleaning: FlowCleaning): void {
    const entries = this.#kept.map(({ entry }) => entry);
    for (const { sequence, ...entry } of withCleanedFlows(entries, family, cleaning)) {
      this.replace(sequence, entry);
    }
  }

  /** Somebody else has mended something. Those of the same user that follow each other are one entry. */
  repaired(note: RepairNote): void {
    const entry = { kind: "repair", at: this.#now(), ...note, times: 1 } as const;
    const newest = this.#kept.map((kept) => kept.entry).reverse();
    const earlier = entryToContinue(newest, entry);
    if (earlier) this.replace(earlier.sequence, mergedRepairs(earlier, entry));
    else this.add(entry);
  }

  /** Fields of the configuration file have been taken up. Their values are not kept: one may be secret. */
  configurationChanged(fields: readonly string[]): void {
    this.add({ kind: "configuration", at: this.#now(), fields });
  }

  #now(): string {
    return new Date(this.#clock.wallNow()).toISOString();
  }

  #forget(): void {
    const { entries, bytes } = this.#bounds;
    while (this.#kept.length > 1 && (this.#kept.length > entries || this.#bytes > bytes)) {
      this.#bytes -= this.#kept.shift()!.bytes;
      this.#forgotten++;
    }
  }
}

/** Two bytes for each letter of the text form, and as much again for the objects around it. */
function sizeOf(entry: ChangeEntry): number {
  return 4 * JSON.stringify(entry).length;
}
