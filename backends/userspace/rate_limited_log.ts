/**
 * Warnings about clients and endpoints, which may occur thousands of times a second.
 *
 * @module
 */
import type { LogFields, Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";

interface Muted {
  until: number;
  suppressed: number;
}

/** Prints each sentence once in an interval, and counts the others. */
export class RateLimitedLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #intervalMs: number;
  // One entry for each constant sentence of the code: it does not grow.
  readonly #muted = new Map<string, Muted>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    intervalMs = 10_000,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#intervalMs = intervalMs;
  }

  /**
   * Warns unless this sentence was printed within the interval. `suppressed` counts the omitted
   * ones.
   */
  warn(message: string, fields: LogFields = {}): void {
    const now = this.#clock.now();
    const muted = this.#muted.get(message);
    if (muted && now < muted.until) {
      muted.suppressed++;
      return;
    }
    this.#muted.set(message, { until: now + this.#intervalMs, suppressed: 0 });
    const suppressed = muted?.suppressed ?? 0;
    this.#logger.warn(message, suppressed > 0 ? { ...fields, suppressed } : fields);
  }
}
