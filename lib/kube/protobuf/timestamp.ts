import type { MessageCursor } from "./message_cursor.ts";

/** Seconds whose text is kept. */
const MOST_KNOWN = 1_024;

/** Returns a reader of times, which RFC 3339 text stands for in JSON. A message without fields is no time. */
export function timeReader(
  format: "time" | "micro time",
): (cursor: MessageCursor) => string | undefined {
  // Objects were created together, and follow each other in the order of their names.
  const known = new Map<number, string>();
  return (cursor) => {
    const outer = cursor.enter();
    const isAbsent = cursor.pos === cursor.end;
    let [seconds, nanoseconds] = [0, 0];
    while (cursor.next()) {
      if (cursor.fieldTag === 8) seconds = Number(cursor.int64());
      else if (cursor.fieldTag === 16) nanoseconds = cursor.int32();
      else cursor.pass();
    }
    cursor.leave(outer);
    if (isAbsent) return undefined;
    let text = known.get(seconds);
    if (text === undefined) {
      if (known.size >= MOST_KNOWN) known.clear();
      // A pattern makes a text of its own; slice() and + would keep their parts in memory.
      text = toText(seconds).replace(/\.000Z$/, format === "time" ? "Z" : "");
      known.set(seconds, text);
    }
    if (format === "time") return text;
    return `${text}.${String(Math.trunc(nanoseconds / 1000)).padStart(6, "0")}Z`;
  };
}

/** Throws a RangeError for times that RFC 3339 has no text for. */
function toText(seconds: number): string {
  const text = new Date(seconds * 1000).toISOString();
  if (text.length !== "0000-00-00T00:00:00.000Z".length) {
    throw new RangeError(`${seconds} s is no time between the years 0 and 9999`);
  }
  return text;
}
