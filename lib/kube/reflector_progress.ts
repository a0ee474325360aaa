/**
 * What a reflector can say of itself: phase, times, counts, the last failure.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import { ListStreamError } from "./list_stream.ts";
import { WatchStreamError } from "./watch_stream.ts";

/** What a reflector is doing. */
type ReflectorPhase =
  | "listing"
  | "watching"
  /** Waiting after a failure; what is known stays in use. */
  | "backoff"
  /** The server has no such objects or we may not read them; asked again rarely. */
  | "unavailable";

/** State of a reflector, for `status` and the metrics. Times are in the time of `Clock.now()`. */
export interface ReflectorStatus {
  readonly phase: ReflectorPhase;
  /** When the last event came. */
  readonly lastEventAtMs: number | undefined;
  /** When the last list was complete. */
  readonly lastListAtMs: number | undefined;
  /** Complete lists after the first one. */
  readonly relists: number;
  /** Watches that failed. */
  readonly watchFailures: number;
  /** Message of the last failure; `undefined` again once the server answers. */
  readonly lastError: string | undefined;
}

/** Keeps a {@linkcode ReflectorStatus}, and logs when the server is lost and found. */
export class ReflectorProgress {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #phase: ReflectorPhase = "listing";
  #lastEventAtMs: number | undefined;
  #lastListAtMs: number | undefined;
  #relists = 0;
  #watchFailures = 0;
  #failuresInARow = 0;
  #lastError: string | undefined;
  /** Whether the last answer began well and could not be read: only an event or a list counts then. */
  #wasUnreadable = false;

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = clock;
    this.#logger = logger;
  }

  get status(): ReflectorStatus {
    return {
      phase: this.#phase,
      lastEventAtMs: this.#lastEventAtMs,
      lastListAtMs: this.#lastListAtMs,
      relists: this.#relists,
      watchFailures: this.#watchFailures,
      lastError: this.#lastError,
    };
  }

  /** Failures since the last event or list. */
  get failuresInARow(): number {
    return this.#failuresInARow;
  }

  /** When the last event came, in the time of `Clock.now()`. */
  get lastEventAtMs(): number | undefined {
    return this.#lastEventAtMs;
  }

  /** It lists or watches now. */
  begin(phase: "listing" | "watching"): void {
    this.#phase = phase;
  }

  /** The server accepted a request. Not yet progress: the answer may be an error all the same. */
  noteAccepted(): void {
    if (!this.#wasUnreadable) this.#noteFollowing();
  }

  #noteFollowing(): void {
    this.#wasUnreadable = false;
    if (this.#lastError === undefined) return;
    this.#lastError = undefined;
    this.#logger.info("Connected to the API server again");
  }

  noteEvent(): void {
    this.#lastEventAtMs = this.#clock.now();
    this.#failuresInARow = 0;
    this.#noteFollowing();
  }

  noteListed(objects: number): void {
    if (this.#lastListAtMs !== undefined) this.#relists++;
    this.#lastListAtMs = this.#clock.now();
    this.#failuresInARow = 0;
    this.#noteFollowing();
    this.#logger.verbose(2, "Listed objects", { objects });
  }

  /** Counts a failure; what follows from it is told by one of the next two. */
  noteFailure(error: unknown): void {
    this.#failuresInARow++;
    this.#wasUnreadable = error instanceof WatchStreamError || error instanceof ListStreamError;
    if (this.#phase === "watching") this.#watchFailures++;
  }

  /** It waits after a failure. */
  backOff(error: string, retryInMs: number): void {
    const fields = { error, retryInMs: Math.round(retryInMs) };
    // An outage of an hour is told once, not at each attempt.
    if (this.#lastError === error) {
      this.#logger.verbose(2, "The API server is still not reachable", fields);
    } else {this.#logger.warn(
        "Lost the connection to the API server; known objects stay in use",
        fields,
      );}
    this.#phase = "backoff";
    this.#lastError = error;
  }

  /** It goes on without these objects. */
  giveUp(error: string): void {
    if (this.#lastError !== error) {
      this.#logger.warn("Continuing without objects that the API server does not provide", {
        error,
      });
    }
    this.#phase = "unavailable";
    this.#lastError = error;
  }
}
