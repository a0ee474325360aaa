/**
 * Applies the events of one watch to an informer.
 *
 * @module
 */
import type { KubeObject, ObjectMeta } from "../api/kind.ts";
import type { Clock } from "../os/clock.ts";
import { apiErrorFromStatus } from "./api_error.ts";
import type { Informer, Replacement } from "./informer.ts";
import { INITIAL_EVENTS_END } from "./protobuf.ts";
import { keyOf, metadataOf } from "./slim.ts";
import { TimeSlice } from "../os/time_slice.ts";
import type { WatchEvent } from "./watch_stream.ts";

/** Settings of a {@linkcode WatchFeed}. */
interface WatchFeedOptions<T extends KubeObject> {
  readonly informer: Informer<T>;
  /** Reduces a raw object to the needed fields; `undefined` if it cannot be read. */
  readonly slim: (raw: unknown) => T | undefined;
  /** Whether the watch begins with all existing objects. */
  readonly initialEvents: boolean;
  /**
   * Called for each event, including bookmarks, with the version from which to watch, if it is
   * already usable.
   */
  readonly onEvent: (version: string | undefined) => void;
  /** An initial event brought an object for the first time. */
  readonly onNewInList: () => void;
  /** The initial events are complete. */
  readonly onListed: () => void;
}

/** One watch. */
export class WatchFeed<T extends KubeObject> {
  readonly #clock: Clock;
  readonly #options: WatchFeedOptions<T>;
  /** Present until the initial events are complete. */
  #replacement: Replacement<T> | undefined;

  constructor(clock: Clock, options: WatchFeedOptions<T>) {
    this.#clock = clock;
    this.#options = options;
    if (options.initialEvents) this.#replacement = options.informer.replace();
  }

  /** Whether the initial events are incomplete. */
  get listing(): boolean {
    return this.#replacement !== undefined;
  }

  /** Applies events until the watch ends. Throws an ApiError for an ERROR event. */
  async run(
    chunks: AsyncIterable<Iterable<WatchEvent>>,
    signal: AbortSignal,
  ): Promise<void> {
    const slice = new TimeSlice(this.#clock);
    for await (const events of chunks) {
      for (const event of events) {
        // Decoded events still arrive after an abort.
        signal.throwIfAborted();
        this.#apply(event);
        const pause = slice.pause();
        if (pause) await pause;
      }
    }
  }

  #apply({ type, object: raw }: WatchEvent): void {
    if (type === "ERROR") throw apiErrorFromStatus(raw, { action: "watch on" });
    let metadata: Partial<ObjectMeta>;
    switch (type) {
      case "ADDED":
      case "MODIFIED":
        metadata = this.#upsert(raw)?.metadata ?? metadataOf(raw);
        break;
      case "DELETED":
        metadata = metadataOf(raw);
        this.#options.informer.delete(keyOf(raw) ?? "");
        break;
      case "BOOKMARK":
        metadata = metadataOf(raw);
        if (metadata.annotations?.[INITIAL_EVENTS_END] === "true") this.#finishList();
    }
    // Before its end, a streaming list has no order: no version of it may start a watch.
    this.#options.onEvent(this.listing ? undefined : versionOf(metadata));
  }

  #upsert(raw: unknown): T | undefined {
    const object = this.#options.slim(raw);
    if (object === undefined) this.#replacement?.keep(keyOf(raw) ?? "");
    else if (!this.#replacement) this.#options.informer.upsert(object);
    else if (this.#replacement.add(object)) this.#options.onNewInList();
    return object;
  }

  #finishList(): void {
    this.#replacement?.finish();
    this.#replacement = undefined;
    this.#options.onListed();
  }
}

/** Returns the version from which to watch. An empty one would mean "from now" and lose events. */
function versionOf({ resourceVersion }: Partial<ObjectMeta>): string | undefined {
  return typeof resourceVersion === "string" && resourceVersion !== ""
    ? resourceVersion
    : undefined;
}
