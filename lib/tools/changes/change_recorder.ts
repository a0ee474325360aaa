import { type KubeObject, objectKey } from "../../api/kind.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import type { LoopListener, ObjectChange } from "../../app/change_listener.ts";
import type { Quarantined } from "../../engine/data_plane.ts";
import type { SyncEvent, SyncTimes } from "../../engine/sync_event.ts";
import { countText, groupedText } from "../../log/count_text.ts";
import type { Clock } from "../../os/clock.ts";
import { serviceKeyOfPort, type ServicePortKey } from "../../proxy/service_port_name.ts";
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
import { shortened } from "./describe_plan.ts";

type Counts = ReadonlyMap<string, number>;

/** Where entries go. */
interface Log {
  /** Adds an entry, or replaces that of the sequence number, and returns its sequence number. */
  put(entry: NewEntry, sequence?: number): number;
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
export class ChangeRecorder<Item extends { readonly key: string }> implements LoopListener<Item> {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #loop: EntryLoop;
  readonly #describe: (previous: Item | undefined, next: Item | undefined) => readonly string[];
  readonly #waitMs: number;
  /** Of the last syncs. */
  readonly #times: number[] = [];
  /** Seen since the last {@linkcode drained}. */
  #coming = new Causes();
  /** Part of a sync, but not in effect. */
  #causes = new Causes();
  /** Plans that differ from those in effect, by key. At most 8. */
  readonly #effects = new Map<string, { previous: Item | undefined; next: Item | undefined }>();
  /** Number of the further items, by action. */
  readonly #moreEffects = new Map<string, number>();
  #failures = 0;
  #isFirst = true;
  #quarantined: readonly Quarantined<string>[] = [];
  /** The newest entry of this loop, which may still change. */
  #open: { readonly sequence: number; readonly draft: Draft } | undefined;

  /**
   * `waitMs`: longest wait of a change for its sync by the configuration. `describe` tells two plans of an
   * item apart in words.
   */
  constructor(
    { clock, log }: { readonly clock: Clock; readonly log: Log },
    loop: EntryLoop,
    waitMs: number,
    describe: (previous: Item | undefined, next: Item | undefined) => readonly string[],
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#loop = loop;
    this.#describe = describe;
    this.#waitMs = waitMs;
  }

  seen(change: ObjectChange): void {
    this.#coming.add(change, this.#clock);
  }

  drained(): void {
    this.#causes.append(this.#coming);
    this.#coming = new Causes();
  }

  planned(previous: Item | undefined, next: Item | undefined): void {
    const key = (next ?? previous)?.key;
    if (key === undefined) return;
    const known = this.#effects.get(key);
    if (known) known.next = next;
    else if (this.#effects.size < MAX_NAMED) this.#effects.set(key, { previous, next });
    else count(this.#moreEffects, actionOf(previous, next), 1);
  }

  on(event: SyncEvent): void {
    if (event.kind === "synced") {
      const { full, operations } = event.report;
      const draft = this.#draft(event.times, full, new Map(Object.entries(operations)), undefined);
      const isNothing = burstKind(draft) === "none" && draft.operations.size === 0;
      if (this.#failures > 0) this.#write(draft, true);
      else if (this.#isFirst || !isNothing) {
        const merged = this.#open && mergeBursts(this.#open.draft, draft);
        this.#write(merged ?? draft, merged !== undefined);
      }
      this.#causes = new Causes();
      this.#effects.clear();
      this.#moreEffects.clear();
      this.#failures = 0;
      this.#isFirst = false;
      this.#quarantine(event.quarantined);
    } else if (event.kind === "failed") {
      const isAgain = this.#failures++ > 0;
      this.#write(this.#draft(event.times, false, new Map(), event.error), isAgain);
    }
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
    const sequence = this.#log.put(entry, isContinued ? this.#open?.sequence : undefined);
    this.#open = { sequence, draft };
  }

  #draft(
    { startedAt, plannedAt }: SyncTimes,
    full: boolean,
    operations: Counts,
    error: string | undefined,
  ): Draft {
    const now = this.#clock.now();
    const outcome = error === undefined ? "applied" : "failed";
    const durationMs = rounded(now - startedAt);
    this.#log.timed({ ...this.#loop, at: this.#clock.wallNow(), durationMs, outcome });
    const since = Math.min(this.#causes.firstSeenAt ?? startedAt, startedAt);
    const isOfServices = this.#loop.controller === undefined;
    const causes = this.#causes.lines(isOfServices, (owner) => this.#concern(owner));
    const totalMs = rounded(now - since);
    // A large sync takes long because of its size, so it is no measure of other syncs.
    const isOrdinary = outcome === "applied" && !this.#isFirst && this.#causes.more.size === 0 &&
      causes.length > 0;
    const lastError = this.#failures > 0 ? this.#open?.draft.error : undefined;
    return {
      outcome,
      isFirst: this.#isFirst,
      causes,
      moreCauses: this.#causes.more,
      effects: this.#effectLines(),
      moreEffects: new Map(this.#moreEffects),
      syncs: 1,
      full,
      operations,
      queuedMs: rounded(startedAt - since),
      planMs: rounded(plannedAt - startedAt),
      applyMs: rounded(now - plannedAt),
      totalMs,
      endedAt: now,
      failures: this.#failures,
      error: error === undefined ? lastError : shortReason(error),
      isSlow: isOrdinary && this.#slow(totalMs),
    };
  }

  /** Whether a duration is slow compared with those before it. */
  #slow(durationMs: number): boolean {
    const median = this.#times.toSorted((a, b) => a - b)[this.#times.length >> 1] ?? 0;
    this.#times.push(durationMs);
    if (this.#times.length > MAX_TIMES) this.#times.shift();
    return durationMs > Math.max(SHORTEST_MS + this.#waitMs, TIMES_MEDIAN * median);
  }

  /** Whether items of this Service, or without one any, may have changed. */
  #concern(owner: string | undefined): boolean {
    if (this.#moreEffects.size > 0) return true;
    if (owner === undefined) return this.#effects.size > 0;
    return this.#effects.keys().some((key) => serviceKeyOfPort(key as ServicePortKey) === owner);
  }

  #effectLines(): readonly Named[] {
    return [...this.#effects].flatMap(([key, { previous, next }]) => {
      // Added and deleted before any sync succeeded.
      if (previous === undefined && next === undefined) return [];
      const item = shortened(key);
      const action = actionOf(previous, next);
      const words = this.#describe(previous, next);
      const verb = action === "updated" && words.length > 0 ? "" : ` ${action}`;
      const text = `-> ${item}${verb}${listed(words)}`;
      return [{ what: action, line: { tone: "effect", text, item } }];
    });
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
      this.#log.put({ kind: "quarantine", ...this.#loop, lines: [line] });
    for (const each of into) {
      const text = `QUARANTINE: ${placeOf(each)}: ${shortReason(each.reason)}`;
      add({ tone: "bad", text, item: shortened(each.key) });
    }
    for (const each of out) {
      const text = `Out of quarantine: ${placeOf(each)}`;
      add({ tone: "good", text, item: shortened(each.key) });
    }
  }
}

/** Most entries of one sync: if a whole range of addresses is lost, the first ones say why. */
const MAX_QUARANTINED = 16;

function placeOf({ key, address }: Quarantined<string>): string {
  return address === undefined ? shortened(key) : `${shortened(key)} ${address}`;
}

/** Changes of objects that are not in effect yet. Takes each in constant time and bounded memory. */
class Causes {
  readonly #named = new Map<string, { change: ObjectChange; count: number }>();
  /** Number of the changes that are not named, by kind. */
  readonly more = new Map<string, number>();
  /** The time of the first change, by the clock of the process. */
  firstSeenAt: number | undefined;
  /** Whether a named object was deleted: it may be added again. */
  #namesDeleted = false;

  /** Adds a change. Changes of one object become one, with the state before the first of them. */
  add(change: ObjectChange, clock: Pick<Clock, "now">): void {
    const { kind, previous, current } = change;
    // Enough are named, and its object is new. A first list has tens of thousands of them.
    const isFull = this.#named.size >= MAX_NAMED && !this.#namesDeleted;
    if (isFull && !previous && current) count(this.more, kind, 1);
    else {
      this.firstSeenAt ??= clock.now();
      this.#add(change, 1);
    }
  }

  /** Adds later changes. */
  append(later: Causes): void {
    this.firstSeenAt ??= later.firstSeenAt;
    for (const { change, count } of later.#named.values()) this.#add(change, count);
    for (const [kind, times] of later.more) count(this.more, kind, times);
  }

  #add(change: ObjectChange, times: number): void {
    const identity = `${change.kind} ${nameOf(change)}`;
    const known = this.#named.get(identity);
    if (known) {
      known.change = { ...change, previous: known.change.previous };
      known.count += times;
    } else if (this.#named.size < MAX_NAMED) this.#named.set(identity, { change, count: times });
    else return count(this.more, change.kind, times);
    this.#namesDeleted ||= change.previous !== undefined && change.current === undefined;
  }

  /** Describes the changes, without those that made no difference in the plan, as `hasEffect` knows. */
  lines(
    isOfServices: boolean,
    hasEffect: (owner: string | undefined) => boolean,
  ): readonly Named[] {
    return [...this.#named.values()].flatMap(({ change, count }) => {
      const { kind, previous, current, words = [] } = change;
      const owner = isOfServices ? serviceOf(kind, current ?? previous) : undefined;
      // Nodes and addresses may affect any Service, objects of other loops any item.
      if ((owner !== undefined || !isOfServices) && !hasEffect(owner)) return [];
      const name = shortened(nameOf(change));
      const what = `${KIND_TEXTS[kind] ?? kind}${name === "" ? "" : ` ${name}`}`;
      const times = count > 1 ? ` (${count} changes)` : "";
      const text = `${what} ${actionOf(previous, current)}${times}${listed(words)}`;
      return [{ what: kind, line: { text, ...(name !== "" && { object: name }) } }];
    });
  }
}

function nameOf({ name, previous, current }: ObjectChange): string {
  const object = current ?? previous;
  return name ?? (object ? objectKey(object) : "");
}

/** The key of the only Service that an object of the API may affect. */
function serviceOf(kind: string, object: KubeObject | undefined): string | undefined {
  if (object === undefined) return undefined;
  if (kind !== "EndpointSlice") return objectKey(object);
  const name = object.metadata.labels?.[SERVICE_NAME_LABEL];
  return name === undefined ? undefined : `${object.metadata.namespace}/${name}`;
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
    moreCauses: sum(earlier.moreCauses, later.moreCauses, later.causes),
    effects: earlier.effects,
    moreEffects: sum(earlier.moreEffects, later.moreEffects, later.effects),
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

function sum(one: Counts, other: Counts, named: readonly Named[] = []): Counts {
  const total = new Map(one);
  for (const [name, by] of other) count(total, name, by);
  for (const { what } of named) count(total, what, 1);
  return total;
}

function syncLines(draft: Draft, noun: string): readonly ChangeLine[] {
  const { isFirst, causes, syncs, moreCauses, moreEffects, outcome, failures, error } = draft;
  const { full, operations, queuedMs, planMs, applyMs, isSlow } = draft;
  const lines: ChangeLine[] = [];
  // An entry that has no cause, or too many.
  if (isFirst) lines.push({ text: "First sync: everything that is known" });
  else if (syncs > 1 && causes.length > 0) lines.push({ text: `Many changes, in ${syncs} syncs` });
  else if (moreCauses.size > 0) lines.push({ text: "Many changes at once" });
  else if (causes.length === 0) {
    const often = syncs > 1 ? `, ${syncs} times` : "";
    lines.push({ text: `No object: clean-up, repair or another try${often}` });
  }
  lines.push(...causes.map(({ line }) => line));
  if (moreCauses.size > 0) {
    lines.push({ text: `and ${[...moreCauses].map(kindCountText).join(", ")}` });
  }
  lines.push(...draft.effects.map(({ line }) => line));
  if (moreEffects.size > 0) {
    const parts = [...moreEffects].map(([action, count]) => `${countText(count, noun)} ${action}`);
    lines.push({ tone: "effect", text: `-> and ${parts.join(", ")}` });
  }
  const times = [["waited", queuedMs], ["planned", planMs], ["applied", applyMs]] as const;
  const parts = times.map(([name, ms]) => `${name} ${durationText(ms)}`);
  const work = operationsText(Object.fromEntries(operations));
  const text = `${full ? "everything compared, " : ""}${work} (${parts.join(", ")})`;
  lines.push({ tone: "detail", text });
  if (outcome === "failed") {
    lines.push({ tone: "bad", text: `FAILED ${timesText(failures)}, is tried again: ${error}` });
  } else if (failures > 0) {
    lines.push({ tone: "warning", text: `Had failed ${timesText(failures)}: ${error}` });
  }
  if (isSlow) {
    lines.push({ tone: "warning", text: "SLOW: far longer than other changes lately" });
  }
  return lines;
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

/** Number of durations in the median. */
const MAX_TIMES = 50;
/** A shorter sync is never slow. */
const SHORTEST_MS = 1000;
const TIMES_MEDIAN = 10;
