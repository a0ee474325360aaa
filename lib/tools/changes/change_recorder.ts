import type { LoopListener } from "../../app/change_listener.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import type { SyncEvent, SyncTimes } from "../../engine/sync_event.ts";
import { countText, groupedText } from "../../log/count_text.ts";
import type { Clock } from "../../os/clock.ts";
import { durationText, operationsText } from "../status/number_texts.ts";
import {
  type ChangeLine,
  type EntryLoop,
  MAX_NAMED,
  type NewEntry,
  rounded,
  shortReason,
  type SyncTime,
  timesText,
} from "./change_entry.ts";
import { shortened } from "./change_text.ts";

/** An object before and after the change that caused a sync; one of the two may be absent. */
interface RecordedChange {
  /** A kind of the API, `addresses` or `configuration`. */
  readonly kind: string;
  readonly previous?: unknown;
  readonly current?: unknown;
}

/** The object that changed. */
export interface ChangeSubject {
  /** `namespace/name`, or the name of a Node; empty for kinds without a name. */
  readonly name: string;
  /** The only owner of items that the change can affect; absent where that is any. */
  readonly owner?: string;
}

/** Describes the causes of a controller's syncs. */
export interface CauseWords<Change extends RecordedChange> {
  subjectOf(change: Change): ChangeSubject;
  /** The difference between both states. */
  wordsOf(change: Change): readonly string[];
}

/** Describes the items of a controller's plan. */
export interface EffectWords<Item> {
  keyOf(item: Item): string;
  ownerOf(item: Item): string;
  wordsOf(previous: Item | undefined, next: Item | undefined): readonly string[];
}

type Counts = ReadonlyMap<string, number>;

/** Where entries go. */
interface Log {
  /** Both return the sequence number of the entry. */
  add(entry: NewEntry): number;
  replace(sequence: number, entry: NewEntry): number;
  timed(sync: SyncTime): void;
}

/** A line, and by what it is counted: the kind of the object, or the action. */
interface Named {
  readonly what: string;
  readonly line: ChangeLine;
}

/** What an entry of a sync is made of. */
interface Draft {
  readonly outcome: "applied" | "failed";
  readonly isFirst: boolean;
  readonly causes: readonly Named[];
  /** Numbers of further changes, by kind of object. */
  readonly moreCauses: Counts;
  readonly effects: readonly Named[];
  /** Numbers of further items, by action. */
  readonly moreEffects: Counts;
  /** Number of syncs in the entry. */
  readonly syncs: number;
  readonly full: boolean;
  readonly operations: Counts;
  /** From the first cause to the begin of the sync, in milliseconds. */
  readonly queuedMs: number;
  readonly planMs: number;
  readonly applyMs: number;
  /** From the first cause to the end of the sync. */
  readonly totalMs: number;
  /** The end, by the clock of the process. */
  readonly endedAt: number;
  /** Failed attempts, and the reason of the last one. */
  readonly failures: number;
  readonly error: string | undefined;
  readonly isSlow: boolean;
}

/**
 * Follows the changes of one loop from the object to the data plane and writes them into the log. Every
 * call but those at the end of a sync takes constant time.
 */
export class ChangeRecorder<Change extends RecordedChange, Item>
  implements LoopListener<Change, Item> {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #loop: EntryLoop;
  readonly #causeWords: CauseWords<Change>;
  readonly #effectWords: EffectWords<Item>;
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
  #open: { readonly sequence: number; readonly draft: Draft } | undefined;

  constructor(
    { clock, log }: { readonly clock: Clock; readonly log: Log },
    { loop, waitMs, causeWords, effectWords }: {
      readonly loop: EntryLoop;
      /** Longest wait of a change for its sync by the configuration, in milliseconds. */
      readonly waitMs: number;
      readonly causeWords: CauseWords<Change>;
      readonly effectWords: EffectWords<Item>;
    },
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#loop = loop;
    this.#causeWords = causeWords;
    this.#effectWords = effectWords;
    this.#slow = new SlowSyncs(waitMs);
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
    this.#coming = new PendingCauses(this.#causeWords);
  }

  /** The plan of an item has changed. */
  planned(previous: Item | undefined, next: Item | undefined): void {
    this.#effects.add(previous, next);
  }

  on(event: SyncEvent): void {
    if (event.kind === "synced") {
      const { times, report: { full, operations }, quarantined } = event;
      this.#applied(this.#draft(times, { full, operations: new Map(Object.entries(operations)) }));
      this.#causes = new PendingCauses(this.#causeWords);
      this.#effects = new PendingEffects(this.#effectWords);
      this.#failures = 0;
      this.#isFirst = false;
      this.#quarantine(quarantined);
    } else if (event.kind === "failed") {
      const isAgain = this.#failures++ > 0;
      const draft = this.#draft(event.times, { error: event.error });
      this.#write(draft, isAgain);
    }
  }

  #applied(draft: Draft): void {
    if (this.#failures > 0) return this.#write(draft, true);
    const { causes, effects, moreCauses, moreEffects, operations } = draft;
    const isNothing = causes.length + effects.length + moreCauses.size + moreEffects.size +
        operations.size === 0;
    if (!this.#isFirst && isNothing) return;
    const merged = this.#open && mergeBursts(this.#open.draft, draft);
    this.#write(merged ?? draft, merged !== undefined);
  }

  /** Writes an entry, in place of the newest one of this loop if that is continued. */
  #write(draft: Draft, isContinued: boolean): void {
    const entry: NewEntry = {
      kind: "sync",
      ...this.#loop,
      outcome: draft.outcome,
      waitedMs: draft.queuedMs,
      tookMs: draft.totalMs,
      lines: syncLines(draft, this.#loop.controller ? "item" : "ServicePort"),
    };
    const sequence = isContinued && this.#open
      ? this.#log.replace(this.#open.sequence, entry)
      : this.#log.add(entry);
    this.#open = { sequence, draft };
  }

  #draft(
    { startedAt, plannedAt }: SyncTimes,
    result: { readonly full: boolean; readonly operations: Counts } | { readonly error: string },
  ): Draft {
    const now = this.#clock.now();
    const outcome = "error" in result ? "failed" : "applied";
    const durationMs = rounded(now - startedAt);
    this.#log.timed({ ...this.#loop, at: this.#clock.wallNow(), durationMs, outcome });
    const since = Math.min(this.#causes.firstSeenAt ?? startedAt, startedAt);
    const causes = this.#causes.lines((owner) => this.#effects.concern(owner));
    const totalMs = rounded(now - since);
    // A large sync takes long because of its size, so it is no measure of other syncs.
    const isOrdinary = outcome === "applied" && !this.#isFirst && this.#causes.more.size === 0 &&
      causes.length > 0;
    return {
      outcome,
      isFirst: this.#isFirst,
      causes,
      moreCauses: this.#causes.more,
      effects: this.#effects.lines(),
      moreEffects: this.#effects.more,
      syncs: 1,
      full: "full" in result && result.full,
      operations: "operations" in result ? result.operations : new Map(),
      queuedMs: rounded(startedAt - since),
      planMs: rounded(plannedAt - startedAt),
      applyMs: rounded(now - plannedAt),
      totalMs,
      endedAt: now,
      failures: this.#failures,
      error: "error" in result
        ? shortReason(result.error)
        : this.#failures > 0
        ? this.#open?.draft.error
        : undefined,
      isSlow: isOrdinary && this.#slow.isSlow(totalMs),
    };
  }

  /** Adds an entry for each item that entered or left quarantine. */
  #quarantine(after: readonly Quarantined<string>[]): void {
    const before = this.#quarantined;
    this.#quarantined = after;
    if (before.length === 0 && after.length === 0) return;
    const [old, now] = [new Set(before.map(placeOf)), new Set(after.map(placeOf))];
    const into = after.filter((each) => !old.has(placeOf(each))).slice(0, MAX_QUARANTINED);
    const out = before.filter((each) => !now.has(placeOf(each))).slice(0, MAX_QUARANTINED);
    const add = (line: ChangeLine) =>
      this.#log.add({ kind: "quarantine", ...this.#loop, lines: [line] });
    for (const each of into) {
      const text = `QUARANTINE: ${placeOf(each)}: ${shortReason(each.reason)}`;
      add({ tone: "bad", text, item: shortened(each.key) });
    }
    for (const each of out) {
      add({
        tone: "good",
        text: `Out of quarantine: ${placeOf(each)}`,
        item: shortened(each.key),
      });
    }
  }
}

/** Most entries of one sync: if a whole range of addresses is lost, the first ones say why. */
const MAX_QUARANTINED = 16;

function placeOf({ key, address }: Quarantined<string>): string {
  return address === undefined ? shortened(key) : `${shortened(key)} ${address}`;
}

interface PendingCause<Change> {
  readonly change: Change;
  readonly count: number;
}

/** Changes of objects that are not in effect yet. Takes each in constant time and bounded memory. */
class PendingCauses<Change extends RecordedChange> {
  readonly #words: CauseWords<Change>;
  readonly #named = new Map<string, PendingCause<Change>>();
  /** Number of the changes that are not named, by kind. */
  readonly more = new Map<string, number>();
  /** The time of the first change, by the clock of {@linkcode add}. */
  firstSeenAt: number | undefined;
  /** Whether a named object was deleted: it may be added again. */
  #namesDeleted = false;

  constructor(words: CauseWords<Change>) {
    this.#words = words;
  }

  /**
   * Counts a change that needs no name: enough are named, and its object is new. A first list has
   * tens of thousands of them. Returns whether it did; otherwise call {@linkcode add}.
   */
  countNew({ kind, previous, current }: Change): boolean {
    const isFull = this.#named.size >= MAX_NAMED && !this.#namesDeleted;
    if (!isFull || previous !== undefined || current === undefined) return false;
    count(this.more, kind, 1);
    return true;
  }

  /** Adds a change. Changes of one object become one, with the state before the first of them. */
  add(change: Change, seenAt: number, times = 1): void {
    this.firstSeenAt ??= seenAt;
    const identity = `${change.kind} ${this.#words.subjectOf(change).name}`;
    const known = this.#named.get(identity);
    if (known) {
      const merged = { ...change, previous: known.change.previous };
      this.#named.set(identity, { change: merged, count: known.count + times });
    } else if (this.#named.size < MAX_NAMED) this.#named.set(identity, { change, count: times });
    else return count(this.more, change.kind, times);
    this.#namesDeleted ||= change.previous !== undefined && change.current === undefined;
  }

  /** Adds later changes. */
  append(later: PendingCauses<Change>): void {
    const seenAt = later.firstSeenAt ?? 0;
    for (const { change, count } of later.#named.values()) this.add(change, seenAt, count);
    for (const [kind, times] of later.more) count(this.more, kind, times);
  }

  /** Describes the changes, without those that made no difference in the plan, as `hasEffect` knows. */
  lines(hasEffect: (owner: string) => boolean): readonly Named[] {
    return [...this.#named.values()].flatMap(({ change, count }) => {
      const { name, owner } = this.#words.subjectOf(change);
      if (owner !== undefined && !hasEffect(owner)) return [];
      const kind = KIND_TEXTS[change.kind] ?? change.kind;
      const action = actionOf(change.previous, change.current);
      const times = count > 1 ? ` (${count} changes)` : "";
      const what = name === "" ? kind : `${kind} ${name}`;
      const text = `${what} ${action}${times}${listed(this.#words.wordsOf(change))}`;
      return [{ what: change.kind, line: { text, ...(name !== "" && { object: name }) } }];
    });
  }
}

/** Plans of items that differ from those in effect. Bounded as {@linkcode PendingCauses}. */
class PendingEffects<Item> {
  readonly #words: EffectWords<Item>;
  readonly #named = new Map<
    string,
    { readonly previous: Item | undefined; readonly next: Item | undefined }
  >();
  readonly #owners = new Set<string>();
  /** Number of the items that are not named, by action. */
  readonly more = new Map<string, number>();

  constructor(words: EffectWords<Item>) {
    this.#words = words;
  }

  /** Adds an item whose plan has changed. */
  add(previous: Item | undefined, next: Item | undefined): void {
    const item = next ?? previous;
    if (item === undefined) return;
    const key = this.#words.keyOf(item);
    const known = this.#named.get(key);
    if (known) this.#named.set(key, { ...known, next });
    else if (this.#named.size < MAX_NAMED) {
      this.#named.set(key, { previous, next });
      this.#owners.add(this.#words.ownerOf(item));
    } else count(this.more, actionOf(previous, next), 1);
  }

  /** Whether an item of this owner may be among them. */
  concern(owner: string): boolean {
    return this.more.size > 0 || this.#owners.has(owner);
  }

  lines(): readonly Named[] {
    return [...this.#named].flatMap(([key, { previous, next }]) => {
      // Added and deleted before any sync succeeded.
      if (previous === undefined && next === undefined) return [];
      const item = shortened(key);
      const action = actionOf(previous, next);
      const words = this.#words.wordsOf(previous, next);
      const verb = action === "updated" && words.length > 0 ? "" : ` ${action}`;
      const text = `-> ${item}${verb}${listed(words)}`;
      return [{ what: action, line: { tone: "effect", text, item } }];
    });
  }
}

function count(counts: Map<string, number>, name: string, by: number): void {
  counts.set(name, (counts.get(name) ?? 0) + by);
}

function actionOf(previous: unknown, current: unknown): "added" | "updated" | "deleted" {
  if (previous === undefined && current !== undefined) return "added";
  return previous !== undefined && current === undefined ? "deleted" : "updated";
}

/** Longest gap between two syncs of one burst. */
const GAP_MS = 5000;
/** Longest burst in one entry. */
const LONGEST_MS = 60_000;

/**
 * Merges syncs of one burst: a relist, a storm of changes, repeated attempts to bring something out of
 * quarantine. Returns `undefined` if the later one is an entry of its own.
 */
function mergeBursts(earlier: Draft, later: Draft): Draft | undefined {
  const kind = burstKind(later);
  if (kind === undefined || kind !== burstKind(earlier)) return undefined;
  if (earlier.outcome !== "applied" || later.outcome !== "applied") return undefined;
  const gapMs = later.endedAt - later.totalMs - earlier.endedAt;
  const totalMs = Math.max(0, gapMs) + earlier.totalMs + later.totalMs;
  if (kind === "many" && (gapMs > GAP_MS || totalMs > LONGEST_MS)) return undefined;
  return {
    ...later,
    isFirst: earlier.isFirst,
    causes: earlier.causes,
    moreCauses: sum(earlier.moreCauses, later.moreCauses, countsOf(later.causes)),
    effects: earlier.effects,
    moreEffects: sum(earlier.moreEffects, later.moreEffects, countsOf(later.effects)),
    syncs: earlier.syncs + later.syncs,
    operations: sum(earlier.operations, later.operations),
    queuedMs: earlier.queuedMs,
    planMs: earlier.planMs + later.planMs,
    applyMs: earlier.applyMs + later.applyMs,
    totalMs: kind === "many" ? totalMs : later.totalMs,
  };
}

function burstKind(
  { causes, moreCauses, effects, moreEffects }: Draft,
): "many" | "none" | undefined {
  if (moreCauses.size + moreEffects.size > 0) return "many";
  return causes.length + effects.length === 0 ? "none" : undefined;
}

function sum(...all: readonly Counts[]): Counts {
  const total = new Map<string, number>();
  for (const counts of all) {
    for (const [name, by] of counts) count(total, name, by);
  }
  return total;
}

function countsOf(named: readonly Named[]): Counts {
  const total = new Map<string, number>();
  for (const { what } of named) count(total, what, 1);
  return total;
}

function syncLines(draft: Draft, noun: string): readonly ChangeLine[] {
  const { moreCauses, moreEffects, outcome, failures, error, isSlow } = draft;
  const lines: ChangeLine[] = [...headLines(draft), ...draft.causes.map(({ line }) => line)];
  if (moreCauses.size > 0) {
    lines.push({ text: `and ${[...moreCauses].map(kindCountText).join(", ")}` });
  }
  lines.push(...draft.effects.map(({ line }) => line));
  if (moreEffects.size > 0) {
    const parts = [...moreEffects].map(([action, count]) => `${countText(count, noun)} ${action}`);
    lines.push({ tone: "effect", text: `-> and ${parts.join(", ")}` });
  }
  lines.push({ tone: "detail", text: workText(draft) });
  if (outcome === "failed") {
    lines.push({
      tone: "bad",
      text: `FAILED ${timesText(failures)}, is tried again: ${error}`,
    });
  } else if (failures > 0) {
    lines.push({ tone: "warning", text: `Had failed ${timesText(failures)}: ${error}` });
  }
  if (isSlow) {
    lines.push({ tone: "warning", text: "SLOW: far longer than other changes lately" });
  }
  return lines;
}

/** The first line of an entry that has no cause, or too many. */
function headLines({ isFirst, causes, syncs, moreCauses }: Draft): readonly ChangeLine[] {
  if (isFirst) return [{ text: "First sync: everything that is known" }];
  if (syncs > 1 && causes.length > 0) return [{ text: `Many changes, in ${syncs} syncs` }];
  if (moreCauses.size > 0) return [{ text: "Many changes at once" }];
  if (causes.length > 0) return [];
  const times = syncs > 1 ? `, ${syncs} times` : "";
  return [{ text: `No object: clean-up, repair or another try${times}` }];
}

const KIND_TEXTS: Readonly<Record<string, string>> = {
  addresses: "Addresses of this node",
  configuration: "Configuration",
};

/** E.g. `3 Pods`. Some kinds are plurals. */
function kindCountText([kind, count]: readonly [string, number]): string {
  if (KIND_TEXTS[kind] !== undefined) return `${countText(count, "change")} of ${kind}`;
  return kind.endsWith("s") ? `${groupedText(count)} ${kind}` : countText(count, kind);
}

function listed(details: readonly string[]): string {
  return details.length === 0 ? "" : `: ${details.join(", ")}`;
}

function workText({ operations, full, queuedMs, planMs, applyMs }: Draft): string {
  const kind = full ? "everything compared, " : "";
  const times = [["waited", queuedMs], ["planned", planMs], ["applied", applyMs]] as const;
  const parts = times.map(([name, ms]) => `${name} ${durationText(ms)}`);
  return `${kind}${operationsText(Object.fromEntries(operations))} (${parts.join(", ")})`;
}

/** Number of durations in the median. */
const MAX_TIMES = 50;
/** A shorter sync is never slow. */
const SHORTEST_MS = 1000;
const TIMES_MEDIAN = 10;

/** Finds syncs that take far longer than usual on this machine. */
class SlowSyncs {
  readonly #shortestMs: number;
  readonly #times: number[] = [];

  constructor(waitMs: number) {
    this.#shortestMs = SHORTEST_MS + waitMs;
  }

  /** Adds a duration and returns whether it is slow compared with those before it. */
  isSlow(durationMs: number): boolean {
    const sorted = this.#times.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
    this.#times.push(durationMs);
    if (this.#times.length > MAX_TIMES) this.#times.shift();
    return durationMs > Math.max(this.#shortestMs, TIMES_MEDIAN * median);
  }
}
