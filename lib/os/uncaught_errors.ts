/**
 * The last resort for errors that nothing caught. Without it Deno prints one and ends the process, and
 * with it every connection that goes through.
 *
 * @module
 */
import process from "node:process";
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

/** Everything of the console that a library would print with. */
const PRINTING = ["debug", "dir", "error", "info", "log", "table", "trace", "warn"] as const;

/**
 * From now on it becomes lines of the log: a program that collects JSON lines could not read it. Call
 * it once. What V8 prints when it dies, as for want of memory, no program can take.
 */
export function takeStrayOutput(logger: Logger): void {
  const tell = (text: string) => logger.warn("A library printed a message", { text });
  const print = (...words: readonly unknown[]) => tell(words.map(textOf).join(" "));
  Object.assign(globalThis.console, Object.fromEntries(PRINTING.map((name) => [name, print])));
  process.removeAllListeners("warning");
  process.on("warning", ({ name, message }) => tell(`${name}: ${message}`));
}

function textOf(word: unknown): string {
  return typeof word === "string" ? word : Deno.inspect(word);
}
