/**
 * The log on standard error, with the throttling filters of LogTape. It does not use LogTape's global
 * registry: a logger is a value that callers pass on.
 *
 * @module
 */
import { getThrottlingFilter, type LogLevel, type LogRecord } from "@logtape/logtape";
import { type Clock, systemClock } from "../os/clock.ts";
import type { AdjustableLogger, LogFields } from "./logger.ts";
import { printableText } from "./printable_text.ts";
import { isSecretName, REDACTED, redactText } from "./redact.ts";
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
export function createLogger(
  { format, clock = systemClock, sink = writeToStderr, journal = false, vmodule = [], ...options }:
    LoggerOptions,
): AdjustableLogger {
  const formatted = format === "json" ? toJsonLine : (line: LogLine) => toTextLine(line, journal);
  const print = (line: LogLine) => sink(formatted(line));
  const throttle = createThrottle(clock, print);
  /** What a logger and all loggers made from it share. */
  const shared = { verbosity: options.verbosity, vmodule };

  const loggerWith = (own: LogFields): AdjustableLogger => {
    const log = (level: LogLevel, message: string, fields: LogFields = {}, v = 0) => {
      const timestamp = clock.wallNow();
      const line: LogLine = {
        ...{ category: [], level, message: [message], rawMessage: message, timestamp, v },
        properties: { ...own, ...fields },
      };
      // A user who asked for more verbosity wants every line.
      if (level === "debug" || throttle(line)) print(line);
    };
    const { component } = own;
    /** The verbosity of this component by the patterns, which are matched only when they are new. */
    let known:
      | { readonly entries: readonly VmoduleEntry[]; readonly verbosity: number }
      | undefined;
    const enabled = (level: number) => {
      const { vmodule: entries, verbosity } = shared;
      if (known?.entries !== entries) {
        const isNamed = typeof component === "string";
        known = { entries, verbosity: isNamed ? vmoduleVerbosity(entries, component) : 0 };
      }
      return level <= Math.max(verbosity, known.verbosity);
    };
    return {
      get verbosity() {
        return shared.verbosity;
      },
      setVerbosity: (level) => void (shared.verbosity = level),
      setVmodule: (entries) => void (shared.vmodule = entries),
      error: (message, fields) => log("error", message, fields),
      warn: (message, fields) => log("warning", message, fields),
      info: (message, fields) => log("info", message, fields),
      verbose(level, message, fields) {
        if (enabled(level)) log("debug", message, fields, level);
      },
      enabled,
      with: (fields) => loggerWith({ ...own, ...fields }),
    };
  };
  return loggerWith({});
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

/**
 * Returns whether journald reads standard error, by comparing `JOURNAL_STREAM` with the file behind
 * it. The variable alone is not enough: children inherit it, even if their output is redirected
 * (systemd.exec(5)).
 */
export async function logsToJournal(
  env: (name: string) => string | undefined,
  stderr: () => Promise<{ readonly dev: number; readonly ino: number }> = statStandardError,
): Promise<boolean> {
  const journalStream = env("JOURNAL_STREAM");
  if (!journalStream) return false;
  try {
    const { dev, ino } = await stderr();
    return journalStream === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

/** Loads `node:fs`, which takes 20 ms, only where the variable is set. Deno has no stat of it. */
async function statStandardError(): Promise<{ readonly dev: number; readonly ino: number }> {
  return (await import("node:fs")).fstatSync(2);
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
  clock: Clock,
  print: (line: LogLine) => void,
): (line: LogLine) => boolean {
  const filter = (limit: number, key: (record: LogRecord) => string) =>
    getThrottlingFilter({
      limit,
      key,
      windowMs: WINDOW_MS,
      clock: () => clock.now(),
      summary: {
        logger: {
          warning(_, { suppressed, lastRecord }) {
            const line = lastRecord as LogLine;
            const properties = { of: line.rawMessage, suppressed };
            print({ ...line, message: ["Lines like the last one were held back"], properties });
          },
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

/** A line: LogTape's record and the verbosity at which it is printed. */
interface LogLine extends LogRecord {
  /** 0 for all but verbose lines. */
  readonly v: number;
}

/** Names of the levels, of equal width, and their priorities in the journal (sd-daemon(3)). */
const LEVELS: Readonly<Record<string, { readonly text: string; readonly priority: number }>> = {
  error: { text: "ERROR", priority: 3 },
  warning: { text: "WARN ", priority: 4 },
  info: { text: "INFO ", priority: 6 },
  debug: { text: "DEBUG", priority: 7 },
};

/** Formats a line for people; journald adds the time itself and takes a priority instead of the level. */
function toTextLine({ timestamp, level, message, properties }: LogLine, journal: boolean): string {
  const { priority, text } = LEVELS[level]!;
  const head = journal ? `<${priority}>` : `${new Date(timestamp).toISOString()} ${text} `;
  const fields = Object.entries(properties)
    .map(([name, value]) => ` ${name}=${toValueText(name, value)}`);
  return `${head}${printableText(message.join(""))}${fields.join("")}`.trimEnd();
}

const JSON_KEYS: ReadonlySet<string> = new Set(["ts", "level", "v", "msg", "err"]);

/**
 * Formats a line with the keys of Kubernetes' JSON logs: `ts` in milliseconds, `msg`, `err`, and
 * `v`, which errors do not have. `caller` is left out, because lines of bundled code mean nothing;
 * `level` is kube-relay's own, because Kubernetes has no warnings.
 */
function toJsonLine({ timestamp, level, message, v, properties }: LogLine): string {
  const fields = Object.entries(properties).map(([name, value]) => {
    if (name === "error" && !("err" in properties)) return ["err", toPlainValue(name, value)];
    return [JSON_KEYS.has(name) ? `${name}_` : name, toPlainValue(name, value)];
  });
  const line = {
    ts: timestamp,
    level,
    ...(level !== "error" && { v }),
    msg: String(message[0]),
    ...Object.fromEntries(fields),
  };
  return printableText(JSON.stringify(line));
}

/** Longest text of one value; objects from a cluster may be megabytes. */
const MAX_LENGTH = 2000;

/** Text that is unambiguous without quotes. */
const BARE = /^[\w.,:;/@%+*#()[\]<>-]+$/;

/**
 * Returns the value without secrets, in a form that JSON can express. Errors become their texts.
 */
function toPlainValue(name: string, value: unknown): unknown {
  if (isSecretName(name)) return REDACTED;
  if (typeof value === "string") return shorten(redactText(value));
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (value instanceof Error) return shorten(redactText(errorText(value)));
  if (typeof value !== "object" || value === null) return value;
  const text = toJson(value);
  return text.length > MAX_LENGTH ? shorten(text) : JSON.parse(text);
}

/** Returns the value for people: without quotes if it is one word. */
function toValueText(name: string, value: unknown): string {
  const plain = toPlainValue(name, value);
  if (typeof plain !== "string") return plain === undefined ? "undefined" : toJson(plain);
  return BARE.test(plain) ? plain : printableText(JSON.stringify(plain));
}

/** Returns the message and causes of an error in one line. */
function errorText(error: Error): string {
  const texts: string[] = [];
  for (let each: unknown = error; each !== undefined && texts.length < 5;) {
    const text = each instanceof Error ? each.message || each.name : String(each);
    if (!texts.some((known) => known.includes(text))) texts.push(text);
    each = each instanceof Error ? each.cause : undefined;
  }
  return texts.join(": ");
}

function toJson(value: unknown): string {
  const replace = (name: string, inner: unknown) => {
    if (isSecretName(name)) return REDACTED;
    if (typeof inner === "string") return redactText(inner);
    if (typeof inner === "bigint") return String(inner);
    if (inner instanceof Error) return redactText(errorText(inner));
    return inner instanceof Map || inner instanceof Set ? [...inner] : inner;
  };
  try {
    return printableText(JSON.stringify(value, replace) ?? String(value));
  } catch {
    // A cycle.
    return JSON.stringify(String(value));
  }
}

function shorten(text: string): string {
  return text.length <= MAX_LENGTH
    ? text
    : `${text.slice(0, MAX_LENGTH)}… (${text.length} characters)`;
}
