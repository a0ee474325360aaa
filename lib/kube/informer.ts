/**
 * The store of one kind of object: the last state from a source (reflector or manifests), and the
 * handlers of its changes.
 *
 * @module
 */
import { type KubeObject, objectKey } from "../api/kind.ts";

/** Receives changes. Called synchronously, in order; must not throw. */
export interface InformerHandler<T> {
  onAdd(object: T): void;
  onUpdate(previous: T, current: T): void;
  onDelete(object: T): void;
  /** Everything that existed at the start has been delivered. Called once. */
  onSynced(): void;
}

/** Returns a handler that calls one function for each change; an absent side did not or does not exist. */
export function changeHandler<T>(
  changed: (previous: T | undefined, current: T | undefined) => void,
): InformerHandler<T> {
  return {
    onAdd: (object) => changed(undefined, object),
    onUpdate: changed,
    onDelete: (object) => changed(object, undefined),
    onSynced() {},
  };
}

/** A list that arrives in pieces and replaces the store without a gap. */
export interface Replacement<T> {
  /** Adds or updates one object at once. Returns whether the list did not have it yet. */
  add(object: T): boolean;
  /** Keeps the known state of an object whose listed state cannot be read. */
  keep(key: string): void;
  /** Completes the list: all other objects are deleted, and the informer is synced. */
  finish(): void;
}

/** Maximum number of objects: 25 times as many Services as Kubernetes is tested with. */
const MOST_OBJECTS = 250_000;

/** Store and notifications of one kind. A source writes, handlers listen. */
export class Informer<T extends KubeObject> {
  readonly #objects = new Map<string, T>();
  readonly #handlers: InformerHandler<T>[];
  #synced = false;

  constructor(...handlers: InformerHandler<T>[]) {
    this.#handlers = handlers;
  }

  /** Adds a handler and passes it the known objects. */
  addHandler(handler: InformerHandler<T>): void {
    this.#handlers.push(handler);
    for (const object of this.#objects.values()) handler.onAdd(object);
    if (this.#synced) handler.onSynced();
  }

  /** Whether a first complete list has been delivered. */
  get synced(): boolean {
    return this.#synced;
  }

  get size(): number {
    return this.#objects.size;
  }

  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  values(): IterableIterator<T> {
    return this.#objects.values();
  }

  /**
   * Adds or updates one object. Ignores an object with the stored resourceVersion, which has no
   * news (relists and repeated events). Objects of manifests have no resourceVersion and are never
   * ignored.
   */
  upsert(object: T): void {
    this.#upsert(objectKey(object), object);
  }

  #upsert(key: string, object: T): void {
    const previous = this.#objects.get(key);
    const version = object.metadata.resourceVersion;
    if (previous && version !== undefined && previous.metadata.resourceVersion === version) return;
    this.#objects.set(key, object);
    for (const handler of this.#handlers) {
      if (previous) handler.onUpdate(previous, object);
      else handler.onAdd(object);
    }
  }

  /** Returns the object. Throws an Error if it is new and the store is full. */
  withRoom(object: T | undefined): T | undefined {
    const hasRoom = object === undefined || this.#objects.size < MOST_OBJECTS ||
      this.#objects.has(objectKey(object));
    if (hasRoom) return object;
    throw new Error(
      `Cannot keep '${objectKey(object)}': there are ${MOST_OBJECTS} objects already`,
    );
  }

  /** Deletes one object; unknown keys are ignored. */
  delete(key: string): void {
    const previous = this.#objects.get(key);
    if (!previous) return;
    this.#objects.delete(key);
    for (const handler of this.#handlers) handler.onDelete(previous);
  }

  /** Begins a complete list. An unfinished list keeps what it added and deletes nothing. */
  replace(): Replacement<T> {
    // Not the keys of the list: at the start, these are all, and here are none.
    const missing = new Set(this.#objects.keys());
    return {
      add: (object) => {
        const key = objectKey(object);
        const isNew = missing.delete(key) || !this.#objects.has(key);
        this.#upsert(key, object);
        return isNew;
      },
      keep: (key) => void missing.delete(key),
      finish: () => {
        for (const key of missing) this.delete(key);
        this.markSynced();
      },
    };
  }

  /** Marks the informer as synced. Does nothing the second time. */
  markSynced(): void {
    if (this.#synced) return;
    this.#synced = true;
    for (const handler of this.#handlers) handler.onSynced();
  }
}
