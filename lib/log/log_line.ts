/**
 * A line of the log before formatting, and its two formats.
 *
 * @module
 */
import type { LogRecord } from "@logtape/logtape";
import { printableText } from "./printable_text.ts";
import { isSecretName, REDACTED, redactText } from "./redact.ts";

/** A line: LogTape's record and the verbosity at which it is printed. */
export interface LogLine extends LogRecord {
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

/**
 * Formats a line for people; journald adds the time itself and takes a priority instead of the
 * level.
 */
export function createTextFormat(
  { journal }: { readonly journal: boolean },
): (line: LogLine) => string {
  return ({ timestamp, level, message, properties }) => {
    const { priority, text } = LEVELS[level]!;
    const head = journal ? `<${priority}>` : `${new Date(timestamp).toISOString()} ${text} `;
    const fields = Object.entries(properties)
      .map(([name, value]) => ` ${name}=${toValueText(name, value)}`);
    return `${head}${printableText(message.join(""))}${fields.join("")}`.trimEnd();
  };
}

const JSON_KEYS: ReadonlySet<string> = new Set(["ts", "level", "v", "msg", "err"]);

/**
 * Formats a line with the keys of Kubernetes' JSON logs: `ts` in milliseconds, `msg`, `err`, and
 * `v`, which errors do not have. `caller` is left out, because lines of bundled code mean nothing;
 * `level` is kube-relay's own, because Kubernetes has no warnings.
 */
export function toJsonLine({ timestamp, level, message, v, properties }: LogLine): string {
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
export function toPlainValue(name: string, value: unknown): unknown {
  if (isSecretName(name)) return REDACTED;
  if (typeof value === "string") return shorten(redactText(value));
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (value instanceof Error) return shorten(redactText(errorText(value)));
  if (typeof value !== "object" || value === null) return value;
  const text = toJson(value);
  return text.length > MAX_LENGTH ? shorten(text) : JSON.parse(text);
}

/** Returns the value for people: without quotes if it is one word. */
export function toValueText(name: string, value: unknown): string {
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
