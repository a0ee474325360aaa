/**
 * The log on standard error, from the formatters and throttling filters of LogTape. Its global
 * registry is left alone: a log here is a value that is handed down.
 *
 * @module
 */
import {
  getTextFormatter,
  getThrottlingFilter,
  type LogLevel,
  type LogRecord,
} from "@logtape/logtape";
import { type Clock, systemClock } from "../os/clock.ts";
import { escapeUnsafe, toPlainValue, toValueText } from "./log_value.ts";
import type { AdjustableLogger, LogFields, Logger } from "./logger.ts";

/** How lines look, which are printed, and where they go. */
export interface LoggerOptions {
  readonly format: "text" | "json";
  /** Lines of {@linkcode Logger.verbose} up to this level are printed, until it is set anew. */
  readonly verbosity: number;
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

/** Lines a minute that one message may have about one object … */
const PER_OBJECT = 10;
/** … and about all objects. */
const PER_MESSAGE = 100;
const WINDOW_MS = 60_000;

/** The fields that say what a message is about. */
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

/** Names of the levels, of one width, and their priorities in the journal (sd-daemon(3)). */
const LEVELS: Readonly<Record<string, { readonly text: string; readonly priority: number }>> = {
  error: { text: "ERROR", priority: 3 },
  warning: { text: "WARN ", priority: 4 },
  info: { text: "INFO ", priority: 6 },
  debug: { text: "DEBUG", priority: 7 },
};

/** A log that prints. Repeated lines are held back and counted; secrets are taken out. */
export function createLogger(options: LoggerOptions): AdjustableLogger {
  const { clock = systemClock, sink = writeToStderr, verbosity } = options;
  const format = options.format === "json" ? toJsonLine : textFormat(options);
  const print = (record: LogRecord) => sink(format(record));
  const throttle = createThrottle({ clock, print });
  return new RecordLogger({
    verbosity,
    log(level, message, fields) {
      const record: LogRecord = {
        category: [],
        level,
        message: [message],
        rawMessage: message,
        timestamp: clock.wallNow(),
        properties: fields,
      };
      // Who asked for more verbosity asked for every line.
      if (level === "debug" || throttle(record)) print(record);
    },
  });
}

/** What a log and all that were made from it share. */
interface LogCore {
  verbosity: number;
  readonly log: (level: LogLevel, message: string, fields: LogFields) => void;
}

class RecordLogger implements AdjustableLogger {
  readonly #core: LogCore;
  readonly #fields: LogFields;

  constructor(core: LogCore, fields: LogFields = {}) {
    this.#core = core;
    this.#fields = fields;
  }

  get verbosity(): number {
    return this.#core.verbosity;
  }

  setVerbosity(level: number): void {
    this.#core.verbosity = level;
  }

  error(message: string, fields?: LogFields): void {
    this.#core.log("error", message, { ...this.#fields, ...fields });
  }

  warn(message: string, fields?: LogFields): void {
    this.#core.log("warning", message, { ...this.#fields, ...fields });
  }

  info(message: string, fields?: LogFields): void {
    this.#core.log("info", message, { ...this.#fields, ...fields });
  }

  verbose(level: number, message: string, fields?: LogFields): void {
    if (this.enabled(level)) this.#core.log("debug", message, { ...this.#fields, ...fields });
  }

  enabled(level: number): boolean {
    return level <= this.#core.verbosity;
  }

  with(fields: LogFields): Logger {
    return new RecordLogger(this.#core, { ...this.#fields, ...fields });
  }
}

/**
 * Lets a line through unless there were too many like it. A count of those held back is printed when
 * the next one like them is let through.
 */
function createThrottle(
  { clock, print }: { readonly clock: Clock; readonly print: (record: LogRecord) => void },
): (record: LogRecord) => boolean {
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
  return (record) => perMessage(record) && perObject(record);
}

function summary(last: unknown, suppressed: unknown): LogRecord {
  const record = last as LogRecord;
  return {
    ...record,
    message: ["Lines like the last one were held back"],
    properties: { of: record.rawMessage, suppressed },
  };
}

function textFormat({ journal = false }: LoggerOptions): (record: LogRecord) => string {
  const withLineEnd = getTextFormatter({
    timestamp: journal ? "none" : "rfc3339",
    level: (level) => LEVELS[level]!.text,
    lineEnding: "lf",
    format({ timestamp, level, message, record }) {
      const fields = Object.entries(record.properties)
        .map(([name, value]) => ` ${name}=${toValueText(name, value)}`).join("");
      const head = journal ? `<${LEVELS[record.level]!.priority}>` : `${timestamp} ${level} `;
      return head + message + fields;
    },
  });
  return (record) => withLineEnd(record).trimEnd();
}

/** The keys of Kubernetes' JSON logs (`ts`, `msg`, `v`), and the level. */
function toJsonLine({ timestamp, level, message, properties }: LogRecord): string {
  const fields = Object.entries(properties).map(([name, value]) => {
    const taken = name === "ts" || name === "level" || name === "msg";
    return [taken ? `${name}_` : name, toPlainValue(name, value)];
  });
  const line = { ts: timestamp, level, msg: String(message[0]), ...Object.fromEntries(fields) };
  return escapeUnsafe(JSON.stringify(line));
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
