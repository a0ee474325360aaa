import { getThrottlingFilter, type LogRecord } from "@logtape/logtape";
import type { Clock } from "../os/clock.ts";
import type { LogLine } from "./log_line.ts";

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
