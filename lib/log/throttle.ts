/**
 * Holds back lines that repeat.
 *
 * @module
 */
import { getThrottlingFilter, type LogRecord } from "@logtape/logtape";
import type { Clock } from "../os/clock.ts";
import type { LogLine } from "./log_line.ts";

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

/**
 * Lets a line through unless there were too many like it. A count of those held back is printed when
 * the next one like them is let through.
 */
export function createThrottle(
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
