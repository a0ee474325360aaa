import type { ChangeAction, ChangeCause } from "./change_entry.ts";

/** Most objects and most items of one sync that are named; more are counted. */
export const MOST_NAMED = 16;

/** An object before and after the change that caused a sync; one of the two may be absent. */
export interface RecordedChange {
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

interface PendingCause<Change> {
  readonly change: Change;
  readonly count: number;
  readonly seenAt: number;
}

/** Changes of objects that are not in effect yet. Takes each in constant time and bounded memory. */
export class PendingCauses<Change extends RecordedChange> {
  readonly #words: CauseWords<Change>;
  readonly #named = new Map<string, PendingCause<Change>>();
  readonly #more = new Map<string, number>();
  #firstSeenAt: number | undefined;
  /** Whether a named object was deleted: it may be added again. */
  #namesDeleted = false;

  constructor(words: CauseWords<Change>) {
    this.#words = words;
  }

  /** The time of the first change, by the clock of {@linkcode add}. */
  get firstSeenAt(): number | undefined {
    return this.#firstSeenAt;
  }

  /** Whether there are more changes than are named. */
  get isMany(): boolean {
    return this.#more.size > 0;
  }

  /** Number of the changes that are not named, by kind. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /**
   * Counts a change that needs no name: enough are named, and its object is new. A first list has
   * tens of thousands of them. Returns whether it did; otherwise call {@linkcode add}.
   */
  countNew({ kind, previous, current }: Change): boolean {
    const isFull = this.#named.size >= MOST_NAMED && !this.#namesDeleted;
    if (!isFull || previous !== undefined || current === undefined) return false;
    this.#count(kind, 1);
    return true;
  }

  /** Adds a change. Changes of one object become one, with the state before the first of them. */
  add(change: Change, seenAt: number, count = 1): void {
    this.#firstSeenAt ??= seenAt;
    const identity = `${change.kind} ${this.#words.subjectOf(change).name}`;
    const known = this.#named.get(identity);
    if (known) {
      const merged = { ...change, previous: known.change.previous };
      this.#named.set(identity, { ...known, change: merged, count: known.count + count });
    } else if (this.#named.size < MOST_NAMED) {
      this.#named.set(identity, { change, count, seenAt });
    } else return this.#count(change.kind, count);
    this.#namesDeleted ||= change.previous !== undefined && change.current === undefined;
  }

  /** Adds later changes. */
  append(later: PendingCauses<Change>): void {
    for (const { change, count, seenAt } of later.#named.values()) this.add(change, seenAt, count);
    for (const [kind, count] of later.#more) this.#count(kind, count);
  }

  /**
   * Describes the changes. Leaves out those without a difference in the plan, as `hasEffect`
   * knows; `timeText` formats a time as RFC 3339.
   */
  describe({ hasEffect, timeText }: {
    readonly hasEffect: (owner: string) => boolean;
    readonly timeText: (at: number) => string;
  }): readonly ChangeCause[] {
    return [...this.#named.values()].flatMap(({ change, count, seenAt }) => {
      const { name, owner } = this.#words.subjectOf(change);
      if (owner !== undefined && !hasEffect(owner)) return [];
      const { kind, previous, current } = change;
      const action = actionOf(previous, current);
      return [{
        kind,
        name,
        action,
        details: this.#words.wordsOf(change),
        count,
        seenAt: timeText(seenAt),
      }];
    });
  }

  #count(kind: string, by: number): void {
    this.#more.set(kind, (this.#more.get(kind) ?? 0) + by);
  }
}

/** Plans of items that differ from those in effect. Bounded as {@linkcode PendingCauses}. */
export class PendingEffects<Item> {
  readonly #words: EffectWords<Item>;
  readonly #named = new Map<
    string,
    { readonly previous: Item | undefined; readonly next: Item | undefined }
  >();
  readonly #owners = new Set<string>();
  readonly #more = new Map<ChangeAction, number>();

  constructor(words: EffectWords<Item>) {
    this.#words = words;
  }

  /** Number of the items that are not named, by action. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /** Adds an item whose plan has changed. */
  add(previous: Item | undefined, next: Item | undefined): void {
    const item = next ?? previous;
    if (item === undefined) return;
    const key = this.#words.keyOf(item);
    const known = this.#named.get(key);
    if (known) this.#named.set(key, { ...known, next });
    else if (this.#named.size < MOST_NAMED) {
      this.#named.set(key, { previous, next });
      this.#owners.add(this.#words.ownerOf(item));
    } else {
      const action = actionOf(previous, next);
      this.#more.set(action, (this.#more.get(action) ?? 0) + 1);
    }
  }

  /** Whether an item of this owner may be among them. */
  concern(owner: string): boolean {
    return this.#more.size > 0 || this.#owners.has(owner);
  }

  /** Describes the differences. */
  describe(): readonly {
    readonly key: string;
    readonly action: ChangeAction;
    readonly details: readonly string[];
  }[] {
    return [...this.#named].flatMap(([key, { previous, next }]) => {
      // Added and deleted before any sync succeeded.
      if (previous === undefined && next === undefined) return [];
      const details = this.#words.wordsOf(previous, next);
      return [{ key, action: actionOf(previous, next), details }];
    });
  }
}

function actionOf(previous: unknown, current: unknown): ChangeAction {
  if (previous === undefined && current !== undefined) return "added";
  return previous !== undefined && current === undefined ? "deleted" : "updated";
}
