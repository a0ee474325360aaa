import type { RawObject } from "../../conformance/server.ts";
import type { Collection, FakeApiStore, StoredChange } from "./fake_api_store.ts";
import type { Selector } from "./fake_selectors.ts";

/** The stream of a watch. */
export interface WatchSink {
  write(text: string): void;
  end(): void;
}

/** The query of a watch. */
export interface FakeWatchOptions {
  readonly collection: Collection;
  readonly selector: Selector;
  /** `undefined` and 0 mean "from now, what exists first". */
  readonly resourceVersion: number | undefined;
  readonly sendInitialEvents: boolean;
  readonly bookmarks: boolean;
  readonly timeoutSeconds: number;
}

/** A watch that is being answered; its headers are sent. */
export class FakeWatch {
  readonly #store: FakeApiStore;
  readonly #sink: WatchSink;
  readonly #options: FakeWatchOptions;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #stop: (() => void) | undefined;

  constructor(store: FakeApiStore, sink: WatchSink, options: FakeWatchOptions) {
    this.#store = store;
    this.#sink = sink;
    this.#options = options;
  }

  get collection(): Collection {
    return this.#options.collection;
  }

  /** Sends the known objects, then follows. */
  start(): void {
    const { resourceVersion, collection } = this.#options;
    if (resourceVersion && resourceVersion < this.#store.compactedTo) {
      const message = `too old resource version: ${resourceVersion} (${this.#store.compactedTo})`;
      this.sendError({ code: 410, reason: "Expired", message });
      return this.end();
    }
    if (resourceVersion) {
      for (const change of this.#store.since(collection, resourceVersion)) this.#onChange(change);
    } else {
      this.#sendEverything();
    }
    this.#stop = this.#store.listen((change) => this.#onChange(change));
    const version = this.#store.version;
    this.#timer = setTimeout(() => {
      // Like a real server: nothing new, no bookmark.
      if (this.#store.version > version) this.sendBookmark();
      this.end();
    }, this.#options.timeoutSeconds * 1000);
  }

  /** A bookmark with the current version, where bookmarks were asked for. */
  sendBookmark(): void {
    if (this.#options.bookmarks) this.#sendBookmark({});
  }

  /** An ERROR event. */
  sendError(status: { code: number; reason: string; message: string }): void {
    const object = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", ...status };
    this.#sink.write(JSON.stringify({ type: "ERROR", object }) + "\n");
  }

  /** Anything. */
  sendRaw(text: string): void {
    this.#sink.write(text);
  }

  /** Ends the watch cleanly. */
  end(): void {
    this.forget();
    this.#sink.end();
  }

  /** The client has disconnected. */
  forget(): void {
    clearTimeout(this.#timer);
    this.#stop?.();
  }

  #sendEverything(): void {
    const { collection, selector, sendInitialEvents, bookmarks } = this.#options;
    let text = "";
    for (const object of this.#store.list(collection)) {
      if (!selector(object)) continue;
      text += JSON.stringify({ type: "ADDED", object }) + "\n";
      if (text.length < 65_536) continue;
      this.#sink.write(text);
      text = "";
    }
    if (text !== "") this.#sink.write(text);
    if (sendInitialEvents && bookmarks) this.#sendBookmark({ "k8s.io/initial-events-end": "true" });
  }

  #sendBookmark(annotations: Record<string, string>): void {
    const { kind, apiVersion } = this.#options.collection;
    const metadata = {
      resourceVersion: String(this.#store.version),
      ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
    };
    const object = { kind, apiVersion, metadata, spec: {}, status: {} };
    this.#sink.write(JSON.stringify({ type: "BOOKMARK", object }) + "\n");
  }

  #onChange(change: StoredChange): void {
    const { collection, selector, resourceVersion = 0 } = this.#options;
    // A watch from the future is accepted, and silent until the server has come there.
    if (change.collection !== collection || change.version <= resourceVersion) return;
    const event = selectedEvent(change, selector);
    if (event) this.#sink.write(JSON.stringify(event) + "\n");
  }
}

/**
 * Returns the event for a watch with a selector. An object that leaves the selection appears as
 * deleted.
 */
function selectedEvent(
  { type, object, previous, version }: StoredChange,
  selector: Selector,
): { type: string; object: RawObject } | undefined {
  const was = previous !== undefined && selector(previous);
  const is = type !== "DELETED" && selector(object);
  if (is) return { type: was ? "MODIFIED" : "ADDED", object };
  if (!was) return undefined;
  const metadata = { ...previous.metadata, resourceVersion: String(version) };
  return { type: "DELETED", object: { ...previous, metadata } };
}
