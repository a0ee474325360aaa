import type { RawObject } from "../../conformance/server.ts";
import { type Collection, type FakeApiStore, FakeStoreError, keyOf } from "./fake_api_store.ts";
import type { Selector } from "./fake_selectors.ts";

/** The rest of a list whose first pages were read. */
interface Rest {
  readonly version: number;
  readonly objects: readonly RawObject[];
}

/** Lists and the pages that are still to be read. */
export class FakeApiLists {
  readonly #rests = new Map<string, Rest>();

  constructor(private readonly store: FakeApiStore) {}

  /** Lists that were begun can't be read to their end any more. */
  forget(): void {
    this.#rests.clear();
  }

  /** Answers one request for a list or a page of it; throws a {@linkcode FakeStoreError}. */
  answer(collection: Collection, query: URLSearchParams, selector: Selector): unknown {
    const rest = this.#rest(collection, query, selector);
    // As with a real server, a list from the cache comes in one piece whatever the limit is.
    const isCached = query.get("resourceVersion") === "0";
    const limit = isCached ? Infinity : Number(query.get("limit") ?? Infinity) || Infinity;
    const items = rest.objects.slice(0, limit);
    const { kind, apiVersion } = collection;
    return {
      kind: `${kind}List`,
      apiVersion,
      metadata: this.#metadata(rest, items.length, query),
      // Items of a list don't repeat kind and apiVersion.
      items: items.map((item) => ({ ...item, kind: undefined, apiVersion: undefined })),
    };
  }

  #rest(collection: Collection, query: URLSearchParams, selector: Selector): Rest {
    const token = query.get("continue");
    const version = query.get("resourceVersion");
    if (token === null) {
      if (Number(version ?? 0) > this.store.version) {
        const message = `Timeout: Too large resource version: ${version}, current: ` +
          `${this.store.version}`;
        throw new FakeStoreError(504, "Timeout", message);
      }
      const objects = this.store.list(collection).filter(selector);
      return { version: this.store.version, objects };
    }
    if (version !== null && version !== "0") {
      const message = "specifying resource version is not allowed when using continue";
      throw new FakeStoreError(400, "BadRequest", message);
    }
    if (!isToken(token)) throw new FakeStoreError(400, "BadRequest", "continue key is not valid");
    const rest = this.#rests.get(token);
    if (rest) return rest;
    const message =
      "The provided continue parameter is too old to display a consistent list result";
    throw new FakeStoreError(410, "Expired", message);
  }

  #metadata(
    { version, objects }: Rest,
    read: number,
    query: URLSearchParams,
  ): Record<string, unknown> {
    const metadata = { resourceVersion: String(version) };
    if (read === objects.length) return metadata;
    const rest = { version, objects: objects.slice(read) };
    const next = tokenOf(rest);
    this.#rests.set(next, rest);
    // How many are left is not known of a selection.
    const isSelection = query.has("labelSelector") || query.has("fieldSelector");
    return {
      ...metadata,
      continue: next,
      ...(isSelection ? {} : { remainingItemCount: rest.objects.length }),
    };
  }
}

function tokenOf({ version, objects }: Rest): string {
  return btoa(`${version}:${keyOf(objects[0]!)}`);
}

function isToken(text: string): boolean {
  try {
    return /^\d+:/.test(atob(text));
  } catch {
    return false;
  }
}
