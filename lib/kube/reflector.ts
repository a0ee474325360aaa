/**
 * Keeps an {@linkcode Informer} equal to the API server's collection: a list, then a watch from its
 * version, despite all failures. A new list is compared with the store and never clears it.
 *
 * @module
 */
import { collectionPath, type KubeObject } from "../api/kind.ts";
import { hasFieldNumbers } from "../api/schema_node.ts";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import type { Clock } from "../os/clock.ts";
import { ApiError, apiErrorFromStatus } from "./api_error.ts";
import { Backoff, type BackoffOptions } from "../os/backoff.ts";
import type { KubeClient, Selection } from "./client.ts";
import { ListError, PageTooLargeError } from "./list_page.ts";
import { TransportError } from "./transport.ts";
import type { Subscription } from "./informer_set.ts";
import { LinkedAbort, Watchdog } from "./linked_abort.ts";
import { KubeAuthError } from "./kube_auth.ts";
import { INITIAL_EVENTS_END } from "./protobuf.ts";
import { TimeSlice } from "../os/time_slice.ts";
import { keyOf, metadataOf } from "./slim.ts";
import { isOlderVersion } from "./resource_version.ts";
import { WatchStreamError } from "./watch_stream.ts";

/** State of a reflector, for `status` and the metrics. Times are in the time of `Clock.now()`. */
export interface ReflectorStatus {
  /**
   * `backoff`: waiting after a failure; the known objects stay in use. `unavailable`: the server does not
   * have such objects, or denies access; retried rarely.
   */
  readonly phase: "listing" | "watching" | "backoff" | "unavailable";
  /** The arrival of the last event. */
  readonly lastEventAtMs: number | undefined;
  /** The end of the last list. */
  readonly lastListAtMs: number | undefined;
  /** Complete lists after the first one. */
  readonly relists: number;
  /** Watches that failed. */
  readonly watchFailures: number;
  /** Message of the last failure; `undefined` once the server answers again. */
  readonly lastError: string | undefined;
}

/** The objects and their receiver. */
export interface ReflectorOptions<T extends KubeObject> {
  readonly subscription: Subscription<T>;
  /**
   * Reduces a raw object to the needed fields. `undefined` if it cannot be read: then its former state
   * stays, if there is one, until it can be read again or is deleted.
   */
  readonly slim: (raw: unknown) => T | undefined;
  /** Whether objects may come in protobuf, if the kind has field numbers. @default {true} */
  readonly protobuf?: boolean;
  /** Whether to try a streaming list first. @default {true} */
  readonly streamingLists?: boolean;
  readonly timing?: ReflectorTiming;
  /** Called when a list is complete. */
  readonly onListed?: () => void;
  /** Called if the server does not have such objects, or denies access. */
  readonly onUnavailable?: () => void;
  /** Called for a failure that will be retried after a wait. */
  readonly onFailure?: () => void;
  /** Called for the first answer after a failure. */
  readonly onRecovered?: () => void;
  /** Whether other resources fail too: then a refusal may be over soon. @default {no} */
  readonly othersFail?: () => boolean;
}

const TIMING = {
  /** Shortest requested watch; the longest is twice as long. */
  minWatchSeconds: 300,
  /** The time after its end at which a watch counts as broken. */
  watchGraceMs: 30_000,
  /**
   * The version of a list that is older than this may expire; then there is a new list at once. One
   * that expires sooner is a failure.
   */
  freshListMs: 10_000,
  /** A streaming list without a new object for this time is given up. */
  stallMs: 30_000,
  /**
   * An optional resource that is refused is requested again by back-off for this time: a server that
   * has just started refuses what it will allow in seconds.
   */
  refusalPatienceMs: 180_000,
  /** Time until a resource that stayed unavailable is requested again. */
  unavailableRetryMs: 300_000,
  /** The same for one that many clusters do not have, and that may be installed at any time. */
  absentRetryMs: 40_000,
};

/** Time limits of a reflector that differ from the usual ones. */
export type ReflectorTiming = Partial<Readonly<typeof TIMING>> & {
  readonly backoff?: BackoffOptions;
};

/** Items per page. Objects are larger in JSON, which only definitions of others come in. */
const PAGE_SIZE = 500;
const JSON_PAGE_SIZE = 100;
/** Maximum number of pages; a faulty server might send pages without end. */
const MOST_PAGES = 10_000;
/** A list or watch that ends sooner is short. */
const SHORT_MS = 1000;
/** After this many short lists and watches in a row, each further one counts as a failure. */
const MOST_SHORT = 3;
/** A watch that ends this long before the requested time was broken off. */
const EARLY_END_MS = 1000;
/** Longest wait that a server may request. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/** After this many successive failures with one version, a new list is made. */
const LONGEST_ROW = 3;

/** A streaming list that was accepted and not completed. */
class StalledListError extends Error {
  override name = "StalledListError";
}

/** Lists and watches that ended at once. Repeated immediately, they would be a busy loop. */
class ShortWatchError extends Error {
  override name = "ShortWatchError";
}

/** Lists and watches one resource into one informer. */
export class Reflector<T extends KubeObject> {
  readonly #logger: Logger;
  readonly #backoff: Backoff;
  readonly #timing: typeof TIMING;
  readonly #status: { -readonly [name in keyof ReflectorStatus]: ReflectorStatus[name] } = {
    ...{ phase: "listing", relists: 0, watchFailures: 0 },
    ...{ lastEventAtMs: undefined, lastListAtMs: undefined, lastError: undefined },
  };
  /** Failures since the last event or list. */
  #failuresInARow = 0;
  /** Whether the last answer was unreadable: only an event or a list then ends the failure. */
  #wasUnreadable = false;
  /** The version from which to watch; `undefined` = list first. */
  #version: string | undefined;
  #doing: "streaming list" | "paged list" | "watch" = "streaming list";
  #streaming: boolean;
  #fieldSelector: string | undefined;
  readonly #protobufKind: string | undefined;
  /** Short lists and watches since the last one that was not. */
  #shortInARow = 0;
  /** Whether the version is certainly from this server: no watch has broken since. */
  #isSameServer = false;
  /** The first refusal of an optional resource since the last {@linkcode retryUnavailable}. */
  #refusedAtMs: number | undefined;
  /** Ends the long wait for an unavailable resource. */
  #longWait: LinkedAbort | undefined;

  /** `random` returns numbers from 0 to just below 1. */
  constructor(
    private readonly edges: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly client: KubeClient;
      readonly random: () => number;
    },
    private readonly options: ReflectorOptions<T>,
  ) {
    const resource = collectionPath(options.subscription.spec);
    this.#logger = edges.logger.with({ component: "reflector", resource });
    this.#timing = { ...TIMING, ...options.timing };
    this.#backoff = new Backoff(edges.random, options.timing?.backoff);
    this.#streaming = options.streamingLists ?? true;
    const { spec } = options.subscription;
    this.#fieldSelector = options.subscription.options.fieldSelector;
    this.#protobufKind = options.protobuf !== false && hasFieldNumbers(spec.schema)
      ? spec.kind
      : undefined;
  }

  /** The current state. */
  get status(): ReflectorStatus {
    return { ...this.#status };
  }

  /**
   * Requests an unavailable resource by back-off again, as at the start. Not at once: a server may end
   * the connection after each answer.
   */
  retryUnavailable(): void {
    this.#refusedAtMs = undefined;
    this.#longWait?.abort(new Error("the API server answers again"));
  }

  /** Lists and watches until the signal is aborted, then resolves. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const startedAt = this.edges.clock.now();
      try {
        if (this.#version !== undefined) await this.#watch(signal);
        else if (this.#streaming) await this.#streamingList(signal);
        else await this.#pagedList(signal);
        this.#checkPace(startedAt);
      } catch (error) {
        if (!signal.aborted) await this.#recover(error, signal);
      }
    }
  }

  /**
   * Throws a ShortWatchError if lists and watches end at once again and again. Each may have
   * brought an event, a bookmark, or a version that the server does not know a moment later.
   */
  #checkPace(startedAt: number): void {
    const isShort = this.edges.clock.now() - startedAt < SHORT_MS;
    this.#shortInARow = isShort ? this.#shortInARow + 1 : 0;
    if (this.#shortInARow <= MOST_SHORT) return;
    throw new ShortWatchError("Cannot watch: the server ends lists and watches at once");
  }

  /** Runs a streaming list, which continues as a watch. */
  async #streamingList(signal: AbortSignal): Promise<void> {
    this.#begin("streaming list");
    await this.#follow({ isList: true }, signal);
    if (this.#version === undefined) {
      throw new StalledListError("Cannot list: the stream ended before the list did");
    }
  }

  async #pagedList(signal: AbortSignal): Promise<void> {
    this.#begin("paged list");
    const replacement = this.options.subscription.informer.replace();
    let version: string | undefined;
    let next: string | undefined;
    let [pages, isLast] = [0, false];
    let limit = this.#protobufKind === undefined ? JSON_PAGE_SIZE : PAGE_SIZE;
    do {
      if (++pages > MOST_PAGES) throw new Error(`Cannot list: more than ${MOST_PAGES} pages`);
      // Without a version, the server answers with its latest state, even after a restore.
      const options = { ...this.#selection(), limit, continue: next, signal };
      const page = await this.edges.client.listPage(options, (raw) => {
        const object = this.#slim(raw);
        if (object !== undefined) replacement.add(object);
        else replacement.keep(keyOf(raw) ?? "");
      }).catch((error: unknown) => {
        if (!(error instanceof PageTooLargeError) || limit === 1) throw error;
        limit = Math.ceil(limit / 10);
      });
      if (page === undefined) continue;
      // Every page shows the state of the first one.
      version ??= page.resourceVersion;
      next = page.continue;
      isLast = next === undefined;
    } while (!isLast);
    replacement.finish();
    this.#version = version;
    this.#isSameServer = true;
    this.#noteListed();
  }

  async #watch(signal: AbortSignal): Promise<void> {
    this.#begin("watch");
    // The server may be another one. It accepts a watch from a future version, and sends nothing until
    // then, perhaps for days.
    const current = this.#isSameServer
      ? undefined
      : await this.edges.client.currentVersion({ ...this.#selection(), signal });
    if (!this.#isSameServer && isOlderVersion(current, this.#version!)) {
      return this.#relist(
        "the server's state is older than the local one, as after a restore of etcd",
      );
    }
    await this.#follow({ isList: false }, signal);
  }

  /** Opens a watch, which may begin with a list of all objects, and applies its events until it ends. */
  async #follow({ isList }: { readonly isList: boolean }, signal: AbortSignal): Promise<void> {
    const { clock, client, random } = this.edges;
    const { informer } = this.options.subscription;
    const timeoutSeconds = Math.ceil(this.#timing.minWatchSeconds * (1 + random()));
    const endsAt = clock.now() + timeoutSeconds * 1000;
    this.#isSameServer = false;
    using call = new LinkedAbort(signal);
    // A proxy may keep the stream open after its own connection to the server broke.
    using _deadline = new Watchdog(
      clock,
      timeoutSeconds * 1000 + this.#timing.watchGraceMs,
      () => call.abort(new TransportError("frozen", "Cannot watch: it did not end when expected")),
    );
    // Present until the list is complete.
    let replacement = isList ? informer.replace() : undefined;
    using stall = new Watchdog(clock, this.#timing.stallMs, () => {
      if (!replacement) return;
      call.abort(new StalledListError("Cannot list: the streaming list does not end"));
    });
    const chunks = await client.watch({
      ...this.#selection(),
      ...(isList ? { sendInitialEvents: true } : { resourceVersion: this.#version }),
      timeoutSeconds,
      signal: call.signal,
    });
    // Not yet progress: the answer may be an error.
    if (!this.#wasUnreadable) this.#noteAnswer();
    const slice = new TimeSlice(clock);
    for await (const events of chunks) {
      for (const { type, object: raw } of events) {
        // Decoded events still arrive after an abort.
        call.signal.throwIfAborted();
        if (type === "ERROR") throw apiErrorFromStatus(raw, { action: "watch on" });
        const isPresent = type === "ADDED" || type === "MODIFIED";
        const object = isPresent ? this.#slim(raw) : undefined;
        const { annotations, resourceVersion } = object?.metadata ?? metadataOf(raw);
        if (object !== undefined) {
          if (!replacement) informer.upsert(object);
          else if (replacement.add(object)) stall.touch();
        } else if (isPresent) {
          replacement?.keep(keyOf(raw) ?? "");
        } else if (type === "DELETED") {
          informer.delete(keyOf(raw) ?? "");
        } else if (annotations?.[INITIAL_EVENTS_END] === "true") {
          replacement?.finish();
          replacement = undefined;
          this.#noteListed();
        }
        // Before its end, a streaming list has no order: no version of it may start a watch. An empty
        // version would mean "from now", and lose events.
        const isUsable = typeof resourceVersion === "string" && resourceVersion !== "";
        if (!replacement && isUsable) this.#version = resourceVersion;
        this.#status.lastEventAtMs = clock.now();
        this.#failuresInARow = 0;
        this.#noteAnswer();
        const pause = slice.pause();
        if (pause) await pause;
      }
    }
    this.#isSameServer = clock.now() >= endsAt - EARLY_END_MS;
  }

  #slim(raw: unknown): T | undefined {
    return this.options.subscription.informer.withRoom(this.options.slim(raw));
  }

  #begin(doing: "streaming list" | "paged list" | "watch"): void {
    this.#doing = doing;
    this.#status.phase = doing === "watch" ? "watching" : "listing";
  }

  #noteListed(): void {
    if (this.#status.lastListAtMs !== undefined) this.#status.relists++;
    this.#status.lastListAtMs = this.edges.clock.now();
    this.#failuresInARow = 0;
    this.#noteAnswer();
    const objects = this.options.subscription.informer.size;
    this.#logger.verbose(2, "Listed objects", { objects });
    // A streaming list continues as a watch.
    this.#begin("watch");
    this.options.onListed?.();
  }

  #noteAnswer(): void {
    this.#wasUnreadable = false;
    if (this.#status.lastError === undefined) return;
    this.#status.lastError = undefined;
    this.#logger.info("Connected to the API server again");
    this.options.onRecovered?.();
  }

  /** Reacts to a failure: most are followed by a wait, some need another kind of list. */
  async #recover(error: unknown, signal: AbortSignal): Promise<void> {
    const { fieldSelectorMayBeUnknown, isOftenAbsent = false, optionalOn = [] } =
      this.options.subscription.options;
    this.#failuresInARow++;
    this.#wasUnreadable = error instanceof WatchStreamError || error instanceof ListError;
    if (this.#status.phase === "watching") this.#status.watchFailures++;
    const message = messageOf(error);
    const isStreaming = this.#doing === "streaming list";
    if (error instanceof ApiError) {
      if (optionalOn.includes(error.status)) {
        const isNormal = isOftenAbsent && error.status === 404;
        return await this.#waitUntilAvailable(isNormal ? undefined : message, signal);
      }
      const mayBeUnknown = fieldSelectorMayBeUnknown && this.#fieldSelector !== undefined;
      if (error.isBadRequest() && mayBeUnknown) {
        this.#fieldSelector = undefined;
        return this.#logger.verbose(1, "Server doesn't know the field selector", { message });
      }
    }
    const isRefused = error instanceof ApiError && isStreaming && !isPassing(error);
    if (isRefused || error instanceof StalledListError) {
      this.#streaming = false;
      return this.#logger.verbose(1, "Server refuses a streaming list", { message });
    }
    if (this.#isVersionDoubtful(error)) {
      const isExpired = error instanceof ApiError &&
        (error.isGone() || error.isResourceVersionTooLarge());
      // A new list would expire as soon as a recent one.
      const { lastListAtMs = -Infinity } = this.#status;
      const isFresh = this.edges.clock.now() - lastListAtMs < this.#timing.freshListMs;
      const isAtOnce = isExpired && this.#version !== undefined && !isFresh;
      this.#relist(message);
      if (isAtOnce) return;
    }
    await this.#backOff(error, signal);
  }

  /** Whether to list again and compare, instead of watching from the last version. */
  #isVersionDoubtful(error: unknown): boolean {
    const isLongRow = this.#failuresInARow >= LONGEST_ROW;
    if (error instanceof ApiError) {
      if (error.isGone() || error.isResourceVersionTooLarge()) return true;
      return !isPassing(error) && (!error.isServerError() || isLongRow);
    }
    // Invalid data at one point may be related to the version.
    if (error instanceof WatchStreamError) return isLongRow;
    // An unreachable server is not.
    return !(error instanceof TransportError || error instanceof ShortWatchError ||
      error instanceof KubeAuthError);
  }

  #relist(reason: string): void {
    if (this.#version !== undefined) this.#logger.info("Listing objects again", { reason });
    this.#version = undefined;
  }

  /** `message`: absent = it is no problem that there are no such objects. */
  async #waitUntilAvailable(message: string | undefined, signal: AbortSignal): Promise<void> {
    const { onUnavailable, othersFail } = this.options;
    const { clock, random } = this.edges;
    const now = clock.now();
    if (message !== undefined && this.#status.lastError !== message) {
      const text = "Continuing without objects that the API server does not provide";
      this.#logger.warn(text, { error: message });
    }
    this.#status.phase = "unavailable";
    this.#status.lastError = message;
    onUnavailable?.();
    this.#refusedAtMs ??= now;
    const mayPass = now - this.#refusedAtMs < this.#timing.refusalPatienceMs ||
      othersFail?.() === true;
    if (!mayPass) {
      using wait = new LinkedAbort(signal);
      this.#longWait = wait;
      const { absentRetryMs, unavailableRetryMs } = this.#timing;
      const retryMs = message === undefined ? absentRetryMs : unavailableRetryMs;
      await this.#sleep(retryMs * (1 + random()), wait.signal);
      this.#longWait = undefined;
    }
    await this.#sleep(this.#backoff.next(clock.now()), signal);
  }

  async #backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const asked = error instanceof ApiError ? error.retryAfterMs ?? 0 : 0;
    const own = this.#backoff.next(this.edges.clock.now());
    const waitMs = Math.max(own, Math.min(asked, LONGEST_RETRY_AFTER_MS));
    const message = messageOf(error);
    const fields = { error: message, retryInMs: Math.round(waitMs) };
    // A long outage is logged once, not for each attempt.
    if (this.#status.lastError === message) {
      this.#logger.verbose(2, "The API server is still not reachable", fields);
    } else {
      const text = "Lost the connection to the API server; known objects stay in use";
      this.#logger.warn(text, fields);
    }
    this.#status.phase = "backoff";
    this.#status.lastError = message;
    this.options.onFailure?.();
    await this.#sleep(waitMs, signal);
  }

  async #sleep(ms: number, signal: AbortSignal): Promise<void> {
    try {
      await this.edges.clock.sleep(ms, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  #selection(): Selection {
    const { spec, options: { labelSelector, namespace } } = this.options.subscription;
    return {
      path: collectionPath(spec, namespace),
      labelSelector,
      fieldSelector: this.#fieldSelector,
      protobufKind: this.#protobufKind,
    };
  }
}

/** Whether the answer concerns load or rights, and not the request itself. */
function isPassing(error: ApiError): boolean {
  return error.isTooManyRequests() || error.isUnauthorized() || error.isForbidden() ||
    error.isNotFound() || error.status === 503 || error.status === 504;
}
