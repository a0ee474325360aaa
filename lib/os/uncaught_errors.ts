/**
 * The last resort for errors that nothing caught. Without it Deno prints one and ends the process, and
 * with it every connection that goes through.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";

/** Errors of timers, events, promises, streams and signals that nothing caught. */
export class UncaughtErrors {
  #count = 0;

  /** How many there were since {@linkcode take}. */
  get count(): number {
    return this.#count;
  }

  /** From now on each is logged and counted, and the process goes on. Call it once. */
  take(logger: Logger): void {
    const report = (error: unknown) => {
      this.#count++;
      try {
        logger.error("Uncaught error; please report it", {
          error,
          stack: stackOf(error),
        });
      } catch {
        // A log that cannot be written is no reason to end either.
      }
    };
    globalThis.addEventListener("error", (event) => {
      event.preventDefault();
      report(event.error);
    });
    globalThis.addEventListener("unhandledrejection", (event) => {
      event.preventDefault();
      report(event.reason);
    });
  }
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}
