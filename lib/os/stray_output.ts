/**
 * What Deno, Node's part of it and libraries print by themselves, past the log.
 *
 * @module
 */
import process from "node:process";
import type { Logger } from "../log/logger.ts";

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
