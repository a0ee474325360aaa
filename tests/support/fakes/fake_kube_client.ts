/**
 * An API server as its client sees it, without a connection: objects by path, versions, conflicts, and
 * requests that fail or hang.
 */
import { ApiError } from "../../../lib/kube/api_error.ts";
import { TransportError } from "../../../lib/kube/transport.ts";

/** An object as it is stored. */
export interface StoredObject {
  readonly metadata: Readonly<Record<string, unknown>> & { readonly resourceVersion?: string };
  readonly [field: string]: unknown;
}

/** A request as it came in. */
export interface ClientRequest {
  readonly verb: "get" | "create" | "patch";
  readonly path: string;
  /** What became of it. */
  outcome: "done" | "refused" | "lost";
}

/** The client of any number of processes. */
export class FakeKubeClient {
  readonly objects = new Map<string, StoredObject>();
  readonly requests: ClientRequest[] = [];
  /** Errors of the next requests, one each. */
  readonly failures: Error[] = [];
  /** Whether no request is answered. */
  isAway = false;
  /** The promise that each request waits for before it is carried out. */
  before: (verb: string, path: string) => Promise<void> = () => Promise.resolve();
  /** Called after each change. */
  onChange: (path: string, object: StoredObject) => void = () => {};
  #version = 100;

  /** Stores an object, as another client does. */
  put(path: string, object: object): StoredObject {
    const metadata = (object as StoredObject).metadata;
    const resourceVersion = String(++this.#version);
    const stored = { ...object, metadata: { ...metadata, resourceVersion } };
    this.objects.set(path, stored);
    this.onChange(path, stored);
    return stored;
  }

  get(path: string, signal: AbortSignal): Promise<unknown> {
    return this.#request("get", path, { signal, act: () => this.#found(path) });
  }

  create(collection: string, object: unknown, signal: AbortSignal): Promise<unknown> {
    const path = `${collection}/${(object as StoredObject).metadata.name}`;
    return this.#request("create", path, {
      signal,
      act: () => {
        if (!this.objects.has(path)) return this.put(path, object as object);
        throw new ApiError("it exists", { status: 409, reason: "AlreadyExists" });
      },
    });
  }

  patch(path: string, patch: unknown, signal: AbortSignal): Promise<unknown> {
    return this.#request("patch", path, {
      signal,
      act: () => {
        const object = path.replace(/\/status$/, "");
        const found = this.#found(object);
        const { metadata = {}, ...fields } = patch as Partial<StoredObject>;
        const { resourceVersion = found.metadata.resourceVersion } = metadata;
        if (resourceVersion !== found.metadata.resourceVersion) {
          throw new ApiError("it was modified", { status: 409, reason: "Conflict" });
        }
        return this.put(object, { ...found, ...fields });
      },
    });
  }

  #found(path: string): StoredObject {
    const found = this.objects.get(path);
    if (found) return found;
    throw new ApiError("not found", { status: 404, reason: "NotFound" });
  }

  async #request(
    verb: ClientRequest["verb"],
    path: string,
    { signal, act }: { readonly signal: AbortSignal; readonly act: () => unknown },
  ): Promise<unknown> {
    const request: ClientRequest = { verb, path, outcome: "lost" };
    this.requests.push(request);
    signal.throwIfAborted();
    const aborted = new Promise<never>((_, reject) =>
      signal.addEventListener("abort", () => reject(signal.reason), { once: true })
    );
    await Promise.race([aborted, this.before(verb, path)]);
    if (this.isAway) throw new TransportError("connect", "no route to host");
    const failure = this.failures.shift();
    if (failure) throw failure;
    try {
      const answer = act();
      request.outcome = "done";
      return structuredClone(answer);
    } catch (error) {
      request.outcome = "refused";
      throw error;
    }
  }
}
