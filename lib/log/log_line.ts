/**
 * A line of the log before formatting, and its two formats.
 *
 * @module
 */
import { getTextFormatter, type LogRecord } from "@logtape/logtape";
import { toPlainValue, toValueText } from "./log_value.ts";
import { printableText } from "./printable_text.ts";

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
  const withLineEnd = getTextFormatter({
    timestamp: journal ? "none" : "rfc3339",
    level: (level) => LEVELS[level]!.text,
    lineEnding: "lf",
    format({ timestamp, level, message, record }) {
      const fields = Object.entries(record.properties)
        .map(([name, value]) => ` ${name}=${toValueText(name, value)}`).join("");
      const head = journal ? `<${LEVELS[record.level]!.priority}>` : `${timestamp} ${level} `;
      return head + printableText(message) + fields;
    },
  });
  return (line) => withLineEnd(line).trimEnd();
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
