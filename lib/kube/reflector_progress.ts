import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import { ListError } from "./list_page.ts";
import { WatchStreamError } from "./watch_stream.ts";

/** The phase of a reflector. */
type ReflectorPhase =
  | "listing"
  | "watching"
  /** Waiting after a failure; the known objects stay in use. */
  | "backoff"
  /** The server does not have such objects, or denies access; retried rarely. */
  | "unavailable";

/** State of a reflector, for `status` and the metrics. Times are in the time of `Clock.now()`. */
export interface ReflectorStatus {
  readonly phase: ReflectorPhase;
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

/** Keeps a {@linkcode ReflectorStatus}, and logs when the server is lost and reachable again. */
export class ReflectorProgress {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #onRecovered: () => void;
  #phase: ReflectorPhase = "listing";
  #lastEventAtMs: number | undefined;
  #lastListAtMs: number | undefined;
  #relists = 0;
  #watchFailures = 0;
  #failuresInARow = 0;
  #lastError: string | undefined;
  /** Whether the last answer was unreadable: only an event or a list then ends the failure. */
  #wasUnreadable = false;

  /** `onRecovered` is called for the first answer after a failure. */
  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    onRecovered: () => void,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#onRecovered = onRecovered;
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

  /** The arrival of the last event, by `Clock.now()`. */
  get lastEventAtMs(): number | undefined {
    return this.#lastEventAtMs;
  }

  /** Records the start of a list or watch. */
  begin(phase: "listing" | "watching"): void {
    this.#phase = phase;
  }

  /** Records an accepted request, which is not yet progress, because the answer may be an error. */
  noteAccepted(): void {
    if (!this.#wasUnreadable) this.#noteFollowing();
  }

  #noteFollowing(): void {
    this.#wasUnreadable = false;
    if (this.#lastError === undefined) return;
    this.#lastError = undefined;
    this.#logger.info("Connected to the API server again");
    this.#onRecovered();
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

  /** Counts a failure; one of the next two methods records the consequence. */
  noteFailure(error: unknown): void {
    this.#failuresInARow++;
    this.#wasUnreadable = error instanceof WatchStreamError || error instanceof ListError;
    if (this.#phase === "watching") this.#watchFailures++;
  }

  /** Records the wait after a failure. */
  backOff(error: string, retryInMs: number): void {
    const fields = { error, retryInMs: Math.round(retryInMs) };
    // A long outage is logged once, not for each attempt.
    if (this.#lastError === error) {
      this.#logger.verbose(2, "The API server is still not reachable", fields);
    } else {this.#logger.warn(
        "Lost the connection to the API server; known objects stay in use",
        fields,
      );}
    this.#phase = "backoff";
    this.#lastError = error;
  }

  /** Records that the reflector continues without these objects. */
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
