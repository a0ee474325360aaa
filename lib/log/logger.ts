/**
 * The log that everything below `main.ts` writes to: a constant sentence and fields.
 *
 * @module
 */
import type { VmoduleEntry } from "./vmodule.ts";

/** Fields of a log line. Values are printed as they are; secrets must not be among them. */
export type LogFields = Readonly<Record<string, unknown>>;

/** A log. Verbosity follows kube-proxy's `-v`: 0 to 10. */
export interface Logger {
  /** Something failed and a person should know. */
  error(message: string, fields?: LogFields): void;
  /** Something is not as it should be; the process goes on. */
  warn(message: string, fields?: LogFields): void;
  /** What an operator wants to see at `-v 0`. */
  info(message: string, fields?: LogFields): void;
  /** Detail, printed at this verbosity and above. */
  verbose(level: number, message: string, fields?: LogFields): void;
  /** Whether {@linkcode verbose} at this level prints, for fields that are costly to make. */
  enabled(level: number): boolean;
  /** A log that adds fields to each line. */
  with(fields: LogFields): Logger;
}

/** A log whose verbosity can be changed while it is written to, for itself and all made from it. */
export interface AdjustableLogger extends Logger {
  /** Lines of {@linkcode Logger.verbose} up to this level are printed. */
  readonly verbosity: number;
  /** Sets {@linkcode verbosity}, as `-v` and kube-proxy's `/debug/flags/v` do. */
  setVerbosity(level: number): void;
  /** Sets the patterns of `--vmodule`, for logs that were made before too. */
  setVmodule(entries: readonly VmoduleEntry[]): void;
}
