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
  readonly #status: { -readonly [name in keyof ReflectorStatus]: ReflectorStatus[name] } = {
    phase: "listing",
    lastEventAtMs: undefined,
    lastListAtMs: undefined,
    relists: 0,
    watchFailures: 0,
    lastError: undefined,
  };
  /** Failures since the last event or list. */
  failuresInARow = 0;
  /** Whether the last answer was unreadable: only an event or a list then ends the failure. */
  #wasUnreadable = false;

  /** `onRecovered` is called for the first answer after a failure. */
  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly onRecovered: () => void,
  ) {}

  get status(): ReflectorStatus {
    return { ...this.#status };
  }

  /** Records the start of a list or watch. */
  begin(phase: "listing" | "watching"): void {
    this.#status.phase = phase;
  }

  /** Records an accepted request, which is not yet progress, because the answer may be an error. */
  noteAccepted(): void {
    if (!this.#wasUnreadable) this.#noteFollowing();
  }

  #noteFollowing(): void {
    this.#wasUnreadable = false;
    if (this.#status.lastError === undefined) return;
    this.#status.lastError = undefined;
    this.logger.info("Connected to the API server again");
    this.onRecovered();
  }

  noteEvent(): void {
    this.#status.lastEventAtMs = this.clock.now();
    this.failuresInARow = 0;
    this.#noteFollowing();
  }

  noteListed(objects: number): void {
    if (this.#status.lastListAtMs !== undefined) this.#status.relists++;
    this.#status.lastListAtMs = this.clock.now();
    this.failuresInARow = 0;
    this.#noteFollowing();
    this.logger.verbose(2, "Listed objects", { objects });
  }

  /** Counts a failure; one of the next two methods records the consequence. */
  noteFailure(error: unknown): void {
    this.failuresInARow++;
    this.#wasUnreadable = error instanceof WatchStreamError || error instanceof ListError;
    if (this.#status.phase === "watching") this.#status.watchFailures++;
  }

  /** Records the wait after a failure. */
  backOff(error: string, retryInMs: number): void {
    const fields = { error, retryInMs: Math.round(retryInMs) };
    // A long outage is logged once, not for each attempt.
    if (this.#status.lastError === error) {
      this.logger.verbose(2, "The API server is still not reachable", fields);
    } else {this.logger.warn(
        "Lost the connection to the API server; known objects stay in use",
        fields,
      );}
    this.#status.phase = "backoff";
    this.#status.lastError = error;
  }

  /** Records that the reflector continues without these objects. */
  giveUp(error: string): void {
    if (this.#status.lastError !== error) {
      this.logger.warn("Continuing without objects that the API server does not provide", {
        error,
      });
    }
    this.#status.phase = "unavailable";
    this.#status.lastError = error;
  }
}
