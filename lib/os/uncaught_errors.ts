/**
 * The last resort for uncaught errors. Without it Deno prints one and ends the process, including
 * every forwarded connection.
 *
 * @module
 */
import process from "node:process";
import type { Logger } from "../log/logger.ts";

/** Uncaught errors of timers, events, promises, streams and signals. */
export class UncaughtErrors {
  /** The number of errors since {@linkcode take}. */
  count = 0;

  /** From now on, logs and counts each error, and the process continues. Call it once. */
  take(logger: Logger): void {
    const report = (error: unknown) => {
      this.count++;
      try {
        const stack = error instanceof Error ? error.stack : undefined;
        logger.error("Uncaught error; please report it", { error, stack });
      } catch {
        // A log that cannot be written must not end the process either.
      }
    };
    takeUncaughtErrors(report);
  }
}

/** From now on, each uncaught error of this thread is reported, and the thread continues. */
export function takeUncaughtErrors(report: (error: unknown) => void): void {
  globalThis.addEventListener("error", (event) => {
    event.preventDefault();
    report(event.error);
  });
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    report(event.reason);
  });
}

/** The methods of the console that libraries use. */
const PRINTING = ["debug", "dir", "error", "info", "log", "table", "trace", "warn"] as const;

/**
 * From now on, logs what libraries print, because a collector of JSON lines could not read it. Call
 * it once. The output of V8 when it dies, such as for lack of memory, cannot be captured.
 */
export function takeStrayOutput(logger: Logger): void {
  const report = (text: string) => logger.warn("A library printed a message", { text });
  const print = (...values: readonly unknown[]) => report(values.map(textOf).join(" "));
  Object.assign(globalThis.console, Object.fromEntries(PRINTING.map((name) => [name, print])));
  process.removeAllListeners("warning");
  process.on("warning", ({ name, message }) => report(`${name}: ${message}`));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : Deno.inspect(value);
}
