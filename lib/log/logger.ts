import type { VmoduleEntry } from "./vmodule.ts";

/** Fields of a log line. Values are printed as they are; secrets must not be among them. */
export type LogFields = Readonly<Record<string, unknown>>;

/** A logger. Verbosity follows kube-proxy's `-v`: 0 to 10. */
export interface Logger {
  /** Logs a failure that a person should know. */
  error(message: string, fields?: LogFields): void;
  /** Logs a problem; the process continues. */
  warn(message: string, fields?: LogFields): void;
  /** Logs a line that an operator wants to see at `-v 0`. */
  info(message: string, fields?: LogFields): void;
  /** Logs a detail, at this verbosity and above. */
  verbose(level: number, message: string, fields?: LogFields): void;
  /** Whether {@linkcode verbose} at this level prints, for fields that are expensive to compute. */
  enabled(level: number): boolean;
  /** Returns a logger that adds fields to each line. */
  with(fields: LogFields): Logger;
}

/** A logger with adjustable verbosity, for itself and all loggers made from it. */
export interface AdjustableLogger extends Logger {
  /** Lines of {@linkcode Logger.verbose} up to this level are printed. */
  readonly verbosity: number;
  /** Sets {@linkcode verbosity}, as `-v` and kube-proxy's `/debug/flags/v` do. */
  setVerbosity(level: number): void;
  /** Sets the patterns of `--vmodule`, also for existing loggers. */
  setVmodule(entries: readonly VmoduleEntry[]): void;
}
