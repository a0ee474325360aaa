/**
 * The log on standard error, from the formatters and throttling filters of LogTape. Its global
 * registry is left alone: a log here is a value that is handed down.
 *
 * @module
 */
import type { LogLevel } from "@logtape/logtape";
import { type Clock, systemClock } from "../os/clock.ts";
import { createTextFormat, type LogLine, toJsonLine } from "./log_line.ts";
import type { AdjustableLogger, LogFields, Logger } from "./logger.ts";
import { createThrottle } from "./throttle.ts";
import { type VmoduleEntry, vmoduleVerbosity } from "./vmodule.ts";

/** How lines look, which are printed, and where they go. */
export interface LoggerOptions {
  readonly format: "text" | "json";
  /** Lines of {@linkcode Logger.verbose} up to this level are printed, until it is set anew. */
  readonly verbosity: number;
  /** Components that print more; see `vmodule.ts`. @default {[]} */
  readonly vmodule?: readonly VmoduleEntry[];
  /** Takes a line without its end. @default standard error */
  readonly sink?: (line: string) => void;
  /**
   * Whether journald reads the lines: then they carry its priority in place of time and level.
   * See `journal.ts`. @default {false}
   */
  readonly journal?: boolean;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** A log that prints. Repeated lines are held back and counted; secrets are taken out. */
export function createLogger(options: LoggerOptions): AdjustableLogger {
  const { clock = systemClock, sink = writeToStderr, journal = false, vmodule = [] } = options;
  const format = options.format === "json" ? toJsonLine : createTextFormat({ journal });
  const print = (line: LogLine) => sink(format(line));
  const throttle = createThrottle({ clock, print });
  return new RecordLogger({
    verbosity: options.verbosity,
    vmodule,
    log(level, message, { fields, v = 0 }) {
      const line: LogLine = {
        category: [],
        level,
        message: [message],
        rawMessage: message,
        timestamp: clock.wallNow(),
        properties: fields,
        v,
      };
      // Who asked for more verbosity asked for every line.
      if (level === "debug" || throttle(line)) print(line);
    },
  });
}

/** What a log and all that were made from it share. */
interface LogCore {
  verbosity: number;
  vmodule: readonly VmoduleEntry[];
  readonly log: (
    level: LogLevel,
    message: string,
    details: { readonly fields: LogFields; readonly v?: number },
  ) => void;
}

class RecordLogger implements AdjustableLogger {
  readonly #core: LogCore;
  readonly #fields: LogFields;
  /** What `--vmodule` gives this log's component, by these entries. */
  #own: { readonly entries: readonly VmoduleEntry[]; readonly verbosity: number };

  constructor(core: LogCore, fields: LogFields = {}) {
    this.#core = core;
    this.#fields = fields;
    this.#own = ownVerbosity(core.vmodule, fields);
  }

  get verbosity(): number {
    return this.#core.verbosity;
  }

  setVerbosity(level: number): void {
    this.#core.verbosity = level;
  }

  setVmodule(entries: readonly VmoduleEntry[]): void {
    this.#core.vmodule = entries;
  }

  error(message: string, fields?: LogFields): void {
    this.#core.log("error", message, { fields: { ...this.#fields, ...fields } });
  }

  warn(message: string, fields?: LogFields): void {
    this.#core.log("warning", message, { fields: { ...this.#fields, ...fields } });
  }

  info(message: string, fields?: LogFields): void {
    this.#core.log("info", message, { fields: { ...this.#fields, ...fields } });
  }

  verbose(level: number, message: string, fields?: LogFields): void {
    if (!this.enabled(level)) return;
    this.#core.log("debug", message, { fields: { ...this.#fields, ...fields }, v: level });
  }

  enabled(level: number): boolean {
    const { vmodule } = this.#core;
    // Asked for each line, so the patterns are matched only when they are new.
    if (this.#own.entries !== vmodule) this.#own = ownVerbosity(vmodule, this.#fields);
    return level <= Math.max(this.#core.verbosity, this.#own.verbosity);
  }

  with(fields: LogFields): Logger {
    return new RecordLogger(this.#core, { ...this.#fields, ...fields });
  }
}

function ownVerbosity(entries: readonly VmoduleEntry[], { component }: LogFields) {
  const verbosity = typeof component === "string" ? vmoduleVerbosity(entries, component) : 0;
  return { entries, verbosity };
}

const encoder = new TextEncoder();

/**
 * Written at once, so that the last line before an exit is not lost. Standard error that is closed
 * or full is no reason to end a data plane.
 */
function writeToStderr(line: string): void {
  let rest = encoder.encode(line + "\n");
  try {
    while (rest.length > 0) rest = rest.subarray(Deno.stderr.writeSync(rest));
  } catch {
    // Nowhere to say it.
  }
}
