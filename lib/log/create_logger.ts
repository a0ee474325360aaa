/**
 * The log on standard error, with the formatters and throttling filters of LogTape. It does not use
 * LogTape's global registry: a logger is a value that callers pass on.
 *
 * @module
 */
import { getThrottlingFilter, type LogLevel, type LogRecord } from "@logtape/logtape";
import { fstatSync } from "node:fs";
import { type Clock, systemClock } from "../os/clock.ts";
import { createTextFormat, type LogLine, toJsonLine } from "./log_line.ts";
import type { AdjustableLogger, LogFields, Logger } from "./logger.ts";
import { type VmoduleEntry, vmoduleVerbosity } from "./vmodule.ts";

/** Format, verbosity and destination of the lines. */
export interface LoggerOptions {
  readonly format: "text" | "json";
  /**
   * Lines of {@linkcode Logger.verbose} up to this level are printed, until the level is changed.
   */
  readonly verbosity: number;
  /** Components that print more; see `vmodule.ts`. @default {[]} */
  readonly vmodule?: readonly VmoduleEntry[];
  /** Receives a line without its end. @default standard error */
  readonly sink?: (line: string) => void;
  /**
   * Whether journald reads the lines; they then have its priority instead of time and level.
   * @default {false}
   */
  readonly journal?: boolean;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** Creates a logger that prints. It throttles and counts repeated lines and redacts secrets. */
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
      // A user who asked for more verbosity wants every line.
      if (level === "debug" || throttle(line)) print(line);
    },
  });
}

/** The state that a logger and all loggers made from it share. */
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
  /** The verbosity of this logger's component by `--vmodule`, for these entries. */
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
    // Called for each line, so the patterns are matched only when they are new.
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
 * Written at once, so that the last line before an exit is not lost. A closed or full standard
 * error must not end a data plane.
 */
function writeToStderr(line: string): void {
  let rest = encoder.encode(line + "\n");
  try {
    while (rest.length > 0) rest = rest.subarray(Deno.stderr.writeSync(rest));
  } catch {
    // The error cannot be reported anywhere.
  }
}

/** Device and inode of a file. */
interface FileIdentity {
  readonly dev: number;
  readonly ino: number;
}

/**
 * Returns whether journald reads standard error, by comparing `JOURNAL_STREAM` with the file behind
 * it. The variable alone is not enough: children inherit it, even if their output is redirected
 * (systemd.exec(5)).
 */
export function logsToJournal(
  env: (name: string) => string | undefined,
  stderr: () => FileIdentity = () => fstatSync(2),
): boolean {
  const journalStream = env("JOURNAL_STREAM");
  if (!journalStream) return false;
  try {
    const { dev, ino } = stderr();
    return journalStream === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

/** Maximum number of lines per minute with one message about one object. */
const PER_OBJECT = 10;
/** Maximum number of lines per minute with one message about all objects. */
const PER_MESSAGE = 100;
const WINDOW_MS = 60_000;

/** The fields that identify the object of a message. */
const OBJECT_FIELDS = [
  "ipFamily",
  "servicePort",
  "kind",
  "object",
  "path",
  "file",
  "address",
  "server",
];

/**
 * Creates a filter that suppresses repeated lines. The next line that passes has a count of the
 * suppressed ones.
 */
function createThrottle(
  { clock, print }: { readonly clock: Clock; readonly print: (line: LogLine) => void },
): (line: LogLine) => boolean {
  const filter = (limit: number, key: (record: LogRecord) => string) =>
    getThrottlingFilter({
      limit,
      key,
      windowMs: WINDOW_MS,
      clock: () => clock.now(),
      summary: {
        logger: {
          warning: (_, { suppressed, lastRecord }) => print(summary(lastRecord, suppressed)),
        },
      },
    });
  const messageKey = ({ level, rawMessage }: LogRecord) => `${level} ${String(rawMessage)}`;
  const perMessage = filter(PER_MESSAGE, messageKey);
  const perObject = filter(PER_OBJECT, (record) => {
    const about = OBJECT_FIELDS.map((field) => String(record.properties[field] ?? ""));
    return `${messageKey(record)} ${about.join(" ")}`;
  });
  return (line) => perMessage(line) && perObject(line);
}

function summary(last: unknown, suppressed: unknown): LogLine {
  const line = last as LogLine;
  return {
    ...line,
    message: ["Lines like the last one were held back"],
    properties: { of: line.rawMessage, suppressed },
  };
}
