/**
 * Brings the objects of a data plane to their wanted state. One comparison serves syncs, restarts,
 * the watch for drift, `diff`, `diff --repair` and what a refusal leaves out. A {@linkcode Target}
 * says what it wants, reads what is there and writes changes; everything else is here.
 *
 * A sync of a known state looks only at the groups that may have changed. What is known is dropped
 * after a failure; the next sync reads everything.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";
import { TimeSlice, urgent } from "../os/time_slice.ts";

/** The identity of an object: its kind, such as a set, and its name there. */
export interface ObjectName {
  readonly kind: string;
  readonly name: string;
}

/** One object as it is wanted. Only a shared one may belong to several groups at once. */
export interface KernelObject extends ObjectName {
  /** Its content: objects of one name and text are the same. */
  readonly text: string;
  /** It is there as long as one group has it. All that have it agree on its text. */
  readonly isShared?: true;
}

/** The texts of objects by name, by kind. */
export type Objects = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** An object that is not as it should be. */
export interface ObjectChange extends ObjectName {
  /** As it is; `undefined` = it is missing. */
  readonly before: string | undefined;
  /** As it should be; `undefined` = it is not wanted. */
  readonly after: string | undefined;
}

/** As {@linkcode ObjectChange}, with its owner. */
export interface Change<Owner> extends ObjectChange {
  /**
   * Whom it belongs to, who is left out if it is refused; `undefined` = no one, several, or the target
   * finds owners itself.
   */
  readonly owner: Owner | undefined;
}

/** Changes that are written together. */
export interface Batch<Owner> {
  /**
   * `before` and `after` as in {@linkcode Change}. An object that is not shared and passes from one
   * group to another is added twice, as removed and as missing, in any order.
   */
  add(
    object: ObjectName,
    before: string | undefined,
    after: string | undefined,
    owner: Owner | undefined,
  ): void;
  /**
   * Writes them, if there are any. Throws a {@linkcode Refusal} if some were refused; after any other error,
   * what was applied is unknown.
   */
  commit(): Promise<void>;
}

/**
 * What a data plane has to say. Objects come in groups: each has a `Key`, and an `Item` with which its
 * objects are decided. An `Owner` is what is left out where objects are refused, such as a Service;
 * it may have several groups.
 */
export interface Target<Key extends string, Item, Owner extends string> {
  /**
   * The object that contains all others, such as a table. Where it differs, all others are written
   * anew. @default {objects are independent}
   */
  readonly root?: KernelObject | undefined;
  /** All wanted groups. */
  keys(): Iterable<Key>;
  /**
   * Those that may differ from what was applied, including groups that are no longer wanted.
   * @default {everything is read for each sync}
   */
  dirty?(): Iterable<Key>;
  /** What is wanted is in force: forgets what is dirty, and what was kept for a comparison. */
  settle?(): void;
  /**
   * The wanted group; `undefined` = it is not wanted. `applied` is the last known one, whose numbers
   * and order it keeps where it can; the same object means that nothing changed.
   */
  arrange(key: Key, applied: Item | undefined): Item | undefined;
  objectsOf(item: Item): Iterable<KernelObject>;
  /**
   * What differs between a group as it was applied and the wanted one, for groups so large that only
   * their changes are known; `undefined` = their objects are compared.
   */
  changesOf?(
    applied: Item | undefined,
    item: Item | undefined,
  ): Iterable<ObjectChange> | undefined;
  /** @default {none} */
  ownerOf?(item: Item): Owner | undefined;
  /**
   * Whether a text that was read means the same as another one that is wanted. @default {equal texts only}
   */
  isSame?(object: ObjectName, found: string, wanted: string): boolean;
  /**
   * Whether an object that is not wanted does no harm: it is no difference, and {@linkcode tidy} removes it.
   * @default {it does harm}
   */
  isUnused?(object: ObjectChange): boolean;
  /**
   * Reads all objects; `undefined` = there are none. Throws {@linkcode Unreadable} if they are damaged.
   * `applied`: the groups as they were last known.
   */
  read(applied: ReadonlyMap<Key, Item>): Promise<Objects | undefined>;
  /**
   * `reading`: what was read, of which the batch says the differences; `undefined` = the state is known,
   * so that nothing was read.
   */
  begin(reading: Reading | undefined): Batch<Owner>;
  /**
   * Removes unused objects, if there are many or `all` are to go. Returns whether the state is still
   * known. @default {there are none}
   */
  tidy?(options: { readonly all: boolean }): Promise<boolean>;
  /**
   * Leaves these out until they are tried again. Returns whether another attempt may succeed.
   * @default {nothing is refused}
   */
  leaveOut?(reasons: ReadonlyMap<Owner, string>): boolean;
}

/**
 * Objects were refused; `reasons` by owner. `isPartial`: other changes of the batch may be in force, so
 * that everything is read again; otherwise none is.
 */
export class Refusal<Owner extends string = string> extends Error {
  readonly reasons: ReadonlyMap<Owner, string>;
  readonly isPartial: boolean;

  constructor(reasons: ReadonlyMap<Owner, string>, cause: Error, { isPartial = false } = {}) {
    super(cause.message, { cause });
    this.reasons = reasons;
    this.isPartial = isPartial;
  }
}

/** What is there cannot be read, though the right to do so is there. */
export class Unreadable extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause });
  }
}

/** The batches of one sync that may be refused: some tools name only the first refused object. */
const MAX_REFUSALS = 16;
/** Readings until two have the same differences: the kernel may cut a listing off. */
const MAX_READINGS = 5;
/** After so many failed readings in a row, the root is replaced unread. */
const FAILED_READS = 3;
/** Objects between two looks at the clock. */
const OBJECTS_PER_LOOK = 256;

const NO_OBJECTS: Objects = new Map();

/** What {@linkcode Target.read} returned: `{ objects: undefined }` is a reading that found nothing. */
export interface Reading {
  readonly objects: Objects | undefined;
}

/** By group that was compared, what it is then, and the shared objects of these groups. */
interface Outcome<Key, Item> {
  readonly items: ReadonlyMap<Key, Item | undefined>;
  readonly uses: ReadonlyMap<string, SharedUse>;
}

/** A shared object, and how many groups have it, or how many more do so than before. */
interface SharedUse {
  readonly object: KernelObject;
  readonly count: number;
}

/** Brings one target to its wanted state. One call is in flight at most. */
export class Reconciler<Key extends string, Item, Owner extends string> {
  readonly #clock: Pick<Clock, "now" | "nextTurn">;
  readonly #target: Target<Key, Item, Owner>;
  /** Whether the two below are what is there. Otherwise they are what was last known: its numbers are kept. */
  #isKnown = false;
  #applied = new Map<Key, Item>();
  #shared = new Map<string, SharedUse>();
  /** In a row. */
  #failedReads = 0;
  #failures = 0;
  #partialFailures = 0;
  #isFull = false;

  /** `applied`: groups as another reconciler last knew them. */
  constructor(
    { clock }: { readonly clock: Pick<Clock, "now" | "nextTurn"> },
    target: Target<Key, Item, Owner>,
    applied: Iterable<readonly [Key, Item]> = [],
  ) {
    this.#clock = clock;
    this.#target = target;
    this.#applied = new Map(applied);
  }

  /** Whether the state is known; otherwise the next sync reads and compares everything. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Batches that failed. */
  get failures(): number {
    return this.#failures;
  }

  /** Those of {@linkcode failures} that wrote what changed in a known state. */
  get partialFailures(): number {
    return this.#partialFailures;
  }

  /** Whether the last attempt of a sync compared everything, and not only what is dirty. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** The groups as they were applied, or last known. */
  get applied(): ReadonlyMap<Key, Item> {
    return this.#applied;
  }

  /** Another program may have changed something. */
  forget(): void {
    this.#isKnown = false;
  }

  /**
   * Writes what differs. What is refused in a known state is tried again after a reading, since
   * another program may have changed it; then with a new root; only then it is left out, and the
   * rest is written.
   */
  async sync(): Promise<void> {
    await this.#sync(undefined);
    await this.#tidy(false);
  }

  /**
   * Reads everything and writes what differs. Returns that: what other programs changed, or nothing
   * if the state was not known.
   */
  async verify(): Promise<readonly Change<Owner>[]> {
    const wasKnown = this.#isKnown;
    // Otherwise the reading would find the unused objects.
    if (wasKnown) await this.#tidy(true);
    const { found, changes } = await this.#differences();
    if (changes.length > 0 || !this.#isKnown) {
      this.forget();
      await this.#sync(found);
    } else this.#target.settle?.();
    await this.#tidy(true);
    return wasKnown ? changes : [];
  }

  /** Returns what differs, according to two readings. Writes nothing. */
  async compare(): Promise<readonly Change<Owner>[]> {
    return (await this.#differences()).changes;
  }

  /**
   * As {@linkcode compare}, but returns what `select` makes of the changes. Changes that it leaves out
   * cause no further reading.
   */
  async compareSelected<Selected>(
    select: (
      changes: readonly Change<Owner>[],
    ) => readonly Selected[] | Promise<readonly Selected[]>,
  ): Promise<readonly Selected[]> {
    let selected: readonly Selected[] = [];
    await this.#differences(async (changes) => selected = await select(changes));
    return selected;
  }

  /**
   * Whether a reading has the root, and these groups as they were applied. The cost depends on them
   * alone: objects that are not wanted are not looked for.
   */
  holds(keys: Iterable<Key>, reading: Objects | undefined): boolean {
    const target = this.#target;
    const { root } = target;
    if (!this.#isKnown || (root && textIn(reading, root) !== root.text)) return false;
    for (const key of keys) {
      const item = this.#applied.get(key);
      if (item === undefined) return false;
      for (const object of target.objectsOf(item)) {
        if (!this.#isAsWanted(object, textIn(reading, object))) return false;
      }
    }
    return true;
  }

  #isAsWanted(object: KernelObject, found: string | undefined): boolean {
    return found === object.text ||
      (found !== undefined && this.#target.isSame?.(object, found, object.text) === true);
  }

  async #tidy(all: boolean): Promise<void> {
    if (await this.#target.tidy?.({ all }) === false) this.forget();
  }

  /** `reading`: one that was made just now, for a state that is unknown. */
  async #sync(reading: Reading | undefined): Promise<void> {
    const { root } = this.#target;
    let found = reading;
    let replacesRoot = false;
    for (let refusals = 1;; refusals++) {
      const wasKnown = this.#isKnown;
      this.#isFull = !wasKnown;
      try {
        if (!wasKnown) found ??= await this.#read();
        const batch = this.#target.begin(found);
        const outcome = found === undefined
          ? await this.#compareDirty(batch)
          : await this.#compareAll(found.objects, batch, replacesRoot);
        await batch.commit().catch((error) => {
          this.#failures++;
          if (wasKnown) this.#partialFailures++;
          throw error;
        });
        this.#confirm(outcome);
        return;
      } catch (error) {
        this.forget();
        if (!(error instanceof Refusal)) throw error;
        if (refusals === MAX_REFUSALS) throw error.cause;
        if (wasKnown) continue;
        const keptRoot = root && !replacesRoot && textIn(found?.objects, root) === root.text;
        if (keptRoot) replacesRoot = true;
        // What is refused anew as well is to blame, so that the old root can stay.
        else if (this.#target.leaveOut?.(error.reasons)) replacesRoot = false;
        else throw error.cause;
        // Otherwise nothing was applied, and the reading still holds.
        if (error.isPartial) found = undefined;
      }
    }
  }

  async #read(): Promise<Reading> {
    try {
      const objects = await this.#target.read(this.#applied);
      this.#failedReads = 0;
      return { objects };
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      if (++this.#failedReads < FAILED_READS || this.#target.root === undefined) throw error.cause;
      // Something may be there, but not the root as it is wanted.
      return { objects: NO_OBJECTS };
    }
  }

  /** Reads until two readings in a row differ in the same from what is wanted, or in nothing `counted`. */
  async #differences(
    counted: (
      changes: readonly Change<Owner>[],
    ) => readonly unknown[] | Promise<readonly unknown[]> = (changes) => changes,
  ) {
    let before: string | undefined;
    for (let readings = 1;; readings++) {
      const found = await this.#read();
      const all: Change<Owner>[] = [];
      const add: Batch<Owner>["add"] = (
        { kind, name, isShared }: ObjectName & Pick<KernelObject, "isShared">,
        before,
        after,
        owner,
      ) => void all.push({ kind, name, before, after, owner: isShared ? undefined : owner });
      const { root } = this.#target;
      const rootText = root && textIn(found.objects, root);
      // Where the root differs, that says all.
      if (root && rootText !== root.text) add(root, rootText, root.text, undefined);
      else await this.#compareAll(found.objects, { add }, false);
      const changes = all.filter((change) =>
        change.after !== undefined || this.#target.isUnused?.(change) !== true
      );
      const differences = await counted(changes);
      const text = differences.map((each) => JSON.stringify(each)).join("\n");
      if (differences.length === 0 || text === before || readings === MAX_READINGS) {
        return { found, changes };
      }
      before = text;
    }
  }

  /** Adds what the dirty groups change in a known state. The cost depends on these groups alone. */
  async #compareDirty(batch: Pick<Batch<Owner>, "add">): Promise<Outcome<Key, Item>> {
    const target = this.#target;
    const slice = new TimeSlice(urgent(this.#clock));
    let looks = 0;
    const items = new Map<Key, Item | undefined>();
    const uses = new Map<string, SharedUse>();
    for (const key of target.dirty?.() ?? []) {
      const turn = slice.pause();
      if (turn) await turn;
      const previous = this.#applied.get(key);
      const item = target.arrange(key, previous);
      if (item === previous) continue;
      items.set(key, item);
      const owner = target.ownerOf?.((item ?? previous)!);
      const changes = target.changesOf?.(previous, item);
      if (changes) {
        for (const change of changes) batch.add(change, change.before, change.after, owner);
        continue;
      }
      const left = new Map<string, KernelObject>();
      for (const object of previous === undefined ? [] : target.objectsOf(previous)) {
        if (object.isShared) countUse(uses, object, -1);
        else left.set(idOf(object), object);
      }
      for (const object of item === undefined ? [] : target.objectsOf(item)) {
        const turn = ++looks % OBJECTS_PER_LOOK === 0 ? slice.pause() : undefined;
        if (turn) await turn;
        if (object.isShared) {
          countUse(uses, object, 1);
          continue;
        }
        const before = left.get(idOf(object))?.text;
        left.delete(idOf(object));
        if (before !== object.text) batch.add(object, before, object.text, owner);
      }
      for (const object of left.values()) batch.add(object, object.text, undefined, owner);
    }
    for (const [id, { object, count }] of uses) {
      const known = this.#shared.get(id);
      const before = known?.object.text;
      const after = (known?.count ?? 0) + count > 0 ? object.text : undefined;
      if (before !== after) batch.add(object, before, after, undefined);
    }
    return { items, uses };
  }

  /**
   * Adds all differences between what was found and all that is wanted. Under a root that is written
   * anew, all objects are.
   */
  async #compareAll(
    found: Objects | undefined,
    batch: Pick<Batch<Owner>, "add">,
    replacesRoot: boolean,
  ): Promise<Outcome<Key, Item>> {
    const target = this.#target;
    const { root } = target;
    const slice = new TimeSlice(urgent(this.#clock));
    let looks = 0;
    const pause = () => ++looks % OBJECTS_PER_LOOK === 0 ? slice.pause() : undefined;
    const items = new Map<Key, Item | undefined>();
    const uses = new Map<string, SharedUse>();
    const before = root && textIn(found, root);
    const isNew = root !== undefined && (replacesRoot || before !== root.text);
    // Where anything was found, or cannot be read, there may be an old root, which has to go.
    if (isNew) batch.add(root, found && (before ?? ""), root.text, undefined);
    /** What was found and not yet met among what is wanted. */
    const rest = new Map<string, Map<string, string>>();
    for (const [kind, texts] of isNew || found === undefined ? NO_OBJECTS : found) {
      rest.set(kind, new Map(texts));
      const turn = slice.pause();
      if (turn) await turn;
    }
    if (root !== undefined) rest.get(root.kind)?.delete(root.name);
    for (const key of target.keys()) {
      const turn = slice.pause();
      if (turn) await turn;
      const item = target.arrange(key, this.#applied.get(key));
      if (item === undefined) continue;
      items.set(key, item);
      const owner = target.ownerOf?.(item);
      for (const object of target.objectsOf(item)) {
        const turn = pause();
        if (turn) await turn;
        if (object.isShared && countUse(uses, object, 1) > 1) continue;
        const texts = rest.get(object.kind);
        const text = texts?.get(object.name);
        texts?.delete(object.name);
        if (this.#isAsWanted(object, text)) continue;
        batch.add(object, text, object.text, owner);
      }
    }
    for (const [kind, texts] of rest) {
      for (const [name, text] of texts) {
        batch.add({ kind, name }, text, undefined, undefined);
        const turn = pause();
        if (turn) await turn;
      }
    }
    return { items, uses };
  }

  #confirm({ items, uses }: Outcome<Key, Item>): void {
    // Everything was compared: it takes the place of what was known before.
    if (this.#isFull) {
      this.#applied = new Map();
      this.#shared = new Map();
    }
    for (const [key, item] of items) {
      if (item === undefined) this.#applied.delete(key);
      else this.#applied.set(key, item);
    }
    for (const [id, { object, count }] of uses) {
      if (countUse(this.#shared, object, count) <= 0) this.#shared.delete(id);
    }
    this.#isKnown = this.#target.dirty !== undefined;
    this.#target.settle?.();
  }
}

/** Counts groups that have a shared object, or negative ones that have it no more. Returns their number. */
function countUse(uses: Map<string, SharedUse>, object: KernelObject, more: number): number {
  const id = idOf(object);
  const known = uses.get(id);
  const count = (known?.count ?? 0) + more;
  // One that a group has no more says nothing about the text that others want.
  uses.set(id, { object: known && more < 0 ? known.object : object, count });
  return count;
}

function idOf({ kind, name }: ObjectName): string {
  return `${kind} ${name}`;
}

function textIn(objects: Objects | undefined, { kind, name }: ObjectName): string | undefined {
  return objects?.get(kind)?.get(name);
}
