import type { Clock } from "../os/clock.ts";
import type { LogFields, Logger } from "./logger.ts";

const MINUTE_MS = 60_000;
/** Most lines in a minute. */
const MOST_LINES = 100;

/** Logs lines of which users of the cluster can cause any number, at most a hundred a minute. */
export class LimitedLines {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #lines = 0;
  #since = -Infinity;

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = clock;
    this.#logger = logger;
  }

  info(message: string, fields: LogFields): void {
    if (this.#take()) this.#logger.info(message, fields);
  }

  warn(message: string, fields: LogFields): void {
    if (this.#take()) this.#logger.warn(message, fields);
  }

  #take(): boolean {
    const now = this.#clock.now();
    if (now - this.#since >= MINUTE_MS) [this.#lines, this.#since] = [0, now];
    this.#lines++;
    if (this.#lines === MOST_LINES + 1) {
      this.#logger.warn("Leaving out further lines about single objects for up to a minute", {
        lines: MOST_LINES,
      });
    }
    return this.#lines <= MOST_LINES;
  }
}
