import type { LoopListener } from "../../app/change_listener.ts";
import type { Quarantined, SyncReport } from "../../engine/data_plane.ts";
import { type LoopId, otherController } from "../../engine/loop_id.ts";
import type { AppliedSync, SyncEvent, SyncTimes } from "../../engine/sync_event.ts";
import type { Clock } from "../../os/clock.ts";
import type { ChangedItem, EntryLoop, SyncEntry } from "./change_entry.ts";
import type { ChangeLog } from "./change_log.ts";
import { shortened } from "./change_text.ts";
import { mergeBursts } from "./merge_bursts.ts";
import {
  type CauseWords,
  type EffectWords,
  PendingCauses,
  PendingEffects,
  type RecordedChange,
} from "./pending_changes.ts";

interface ChangeRecorderOptions<Change extends RecordedChange, Item> {
  readonly loop: LoopId;
  readonly causeWords: CauseWords<Change>;
  readonly effectWords: EffectWords<Item>;
  /** Longest wait of a change for its sync by the configuration, in milliseconds. */
  readonly waitMs: number;
}

interface Ended {
  readonly times: SyncTimes;
  readonly report?: SyncReport<string>;
  readonly error?: string;
}

/**
 * Follows the changes of one loop from the object to the data plane and writes them into the log. Every
 * call but those at the end of a sync takes constant time.
 */
export class ChangeRecorder<Change extends RecordedChange, Item>
  implements LoopListener<Change, Item> {
  readonly #clock: Clock;
  readonly #log: ChangeLog;
  readonly #loop: EntryLoop;
  readonly #options: ChangeRecorderOptions<Change, Item>;
  readonly #slow: SlowSyncs;
  /** Seen since the last {@linkcode drained}. */
  #coming: PendingCauses<Change>;
  /** Part of a sync, but not in effect. */
  #causes: PendingCauses<Change>;
  #effects: PendingEffects<Item>;
  #failures = 0;
  #isFirst = true;
  #quarantined: readonly Quarantined<string>[] = [];
  /** The newest entry of this loop, which may still change. */
  #open: SyncEntry | undefined;

  constructor(
    { clock, log }: { readonly clock: Clock; readonly log: ChangeLog },
    options: ChangeRecorderOptions<Change, Item>,
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#options = options;
    const { loop, causeWords, effectWords } = options;
    this.#loop = { ...otherController(loop), family: loop.family };
    this.#slow = new SlowSyncs(options);
    this.#coming = new PendingCauses(causeWords);
    this.#causes = new PendingCauses(causeWords);
    this.#effects = new PendingEffects(effectWords);
  }

  /** Adds a changed object. */
  seen(change: Change): void {
    if (!this.#coming.countNew(change)) this.#coming.add(change, this.#clock.now());
  }

  /** A sync has begun with all changes seen so far. */
  drained(): void {
    this.#causes.append(this.#coming);
    this.#coming = new PendingCauses(this.#options.causeWords);
  }

  /** The plan of an item has changed. */
  planned(previous: Item | undefined, next: Item | undefined): void {
    this.#effects.add(previous, next);
  }

  on(event: SyncEvent): void {
    if (event.kind === "synced") this.#applied(event);
    else if (event.kind === "failed") this.#failed(event.times, event.error);
  }

  #applied({ times, report, quarantined }: AppliedSync): void {
    this.#timed(times, "applied");
    const entry = this.#entry({ times, report });
    this.#writeSuccess(entry);
    this.#causes = new PendingCauses(this.#options.causeWords);
    this.#effects = new PendingEffects(this.#options.effectWords);
    this.#failures = 0;
    this.#isFirst = false;
    for (const change of quarantineChanges(this.#quarantined, quarantined)) {
      const item = itemOf(this.#loop, change.key);
      const { key: _, ...rest } = change;
      this.#log.add({ kind: "quarantine", at: this.#wall(), ...this.#loop, ...item, ...rest });
    }
    this.#quarantined = quarantined;
  }

  /** The sync will be tried again. */
  #failed(times: SyncTimes, error: string): void {
    this.#timed(times, "failed");
    const isAgain = this.#failures > 0;
    this.#failures++;
    const entry = this.#entry({ times, error });
    this.#open = isAgain && this.#open
      ? this.#log.replace(this.#open.sequence, entry) as SyncEntry
      : this.#log.add(entry) as SyncEntry;
  }

  #writeSuccess(entry: Omit<SyncEntry, "sequence">): void {
    if (this.#failures > 0 && this.#open) {
      this.#open = this.#log.replace(this.#open.sequence, entry) as SyncEntry;
      return;
    }
    if (!this.#isFirst && isNothing(entry)) return;
    const merged = this.#open && mergeBursts(this.#open, entry);
    this.#open = this.#open && merged
      ? this.#log.replace(this.#open.sequence, merged) as SyncEntry
      : this.#log.add(entry) as SyncEntry;
  }

  #timed({ startedAt }: SyncTimes, outcome: "applied" | "failed"): void {
    const durationMs = rounded(this.#clock.now() - startedAt);
    this.#log.timed({ ...this.#loop, at: this.#clock.wallNow(), durationMs, outcome });
  }

  #entry({ times: { startedAt, plannedAt }, report, error }: Ended): Omit<SyncEntry, "sequence"> {
    const now = this.#clock.now();
    const since = Math.min(this.#causes.firstSeenAt ?? startedAt, startedAt);
    const entry: Omit<SyncEntry, "sequence"> = {
      kind: "sync",
      at: this.#wall(),
      ...this.#loop,
      outcome: report ? "applied" : "failed",
      ...(this.#isFirst && { first: true }),
      causes: this.#causes.describe({
        hasEffect: (owner) => this.#effects.concern(owner),
        timeText: (at) => this.#wall(at),
      }),
      moreCauses: this.#causes.more,
      effects: this.#effects.describe().map(({ key, ...effect }) => ({
        ...itemOf(this.#loop, key),
        ...effect,
      })),
      moreEffects: this.#effects.more,
      syncs: 1,
      ...(report && { full: report.full }),
      operations: report?.operations ?? {},
      queuedMs: rounded(startedAt - since),
      planMs: rounded(plannedAt - startedAt),
      applyMs: rounded(now - plannedAt),
      totalMs: rounded(now - since),
      failures: this.#failures,
      ...(error !== undefined && { error }),
      ...(error === undefined && this.#failures > 0 && this.#open?.error !== undefined &&
        { error: this.#open.error }),
    };
    return this.#isOrdinary(entry) && this.#slow.isSlow(entry.totalMs)
      ? { ...entry, slow: true }
      : entry;
  }

  /** A large sync takes long because of its size, so it is no measure of other syncs. */
  #isOrdinary({ outcome, causes }: Pick<SyncEntry, "outcome" | "causes">): boolean {
    return outcome === "applied" && !this.#isFirst && !this.#causes.isMany && causes.length > 0;
  }

  #wall(at = this.#clock.now()): string {
    return new Date(this.#clock.wallNow() - (this.#clock.now() - at)).toISOString();
  }
}

/** A periodic sync without any work. */
function isNothing(entry: Omit<SyncEntry, "sequence">): boolean {
  const { causes, moreCauses, effects, moreEffects, operations } = entry;
  return causes.length === 0 && effects.length === 0 &&
    [moreCauses, moreEffects, operations].every((counts) => Object.keys(counts).length === 0);
}

function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 10) / 10;
}

/** Number of durations in the median. */
const MOST_TIMES = 50;
/** A shorter sync is never slow. */
const SHORTEST_MS = 1000;
const TIMES_MEDIAN = 10;

/** Finds syncs that take far longer than usual on this machine. */
class SlowSyncs {
  readonly #shortestMs: number;
  readonly #times: number[] = [];

  constructor({ waitMs }: { readonly waitMs: number }) {
    this.#shortestMs = SHORTEST_MS + waitMs;
  }

  /** Adds a duration and returns whether it is slow compared with those before it. */
  isSlow(durationMs: number): boolean {
    const sorted = this.#times.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
    this.#times.push(durationMs);
    if (this.#times.length > MOST_TIMES) this.#times.shift();
    return durationMs > Math.max(this.#shortestMs, TIMES_MEDIAN * median);
  }
}

/** Most entries of one sync: if a whole range of addresses is lost, the first ones say why. */
const MOST_QUARANTINED = 16;

/** A reason may contain the output of a tool. */
const LONGEST_REASON = 400;

/** Returns an entry for the items that entered quarantine and one for those that left it. */
function quarantineChanges(
  before: readonly Quarantined<string>[],
  after: readonly Quarantined<string>[],
): readonly ReturnType<typeof entryOf>[] {
  if (before.length === 0 && after.length === 0) return [];
  const [old, now] = [new Set(before.map(placeOf)), new Set(after.map(placeOf))];
  const into = after.filter((each) => !old.has(placeOf(each)));
  const out = before.filter((each) => !now.has(placeOf(each)));
  return [
    ...into.slice(0, MOST_QUARANTINED).map((each) => entryOf(each, "in")),
    ...out.slice(0, MOST_QUARANTINED).map((each) => entryOf(each, "out")),
  ];
}

function placeOf({ key, address }: Quarantined<string>): string {
  return `${key} ${address ?? ""}`;
}

function entryOf({ key, address, reason }: Quarantined<string>, direction: "in" | "out") {
  return {
    direction,
    key,
    ...(address !== undefined && { address }),
    reason: reason.slice(0, LONGEST_REASON),
  };
}

function itemOf({ controller }: EntryLoop, key: string): ChangedItem {
  return controller === undefined ? { servicePort: shortened(key) } : { item: shortened(key) };
}
