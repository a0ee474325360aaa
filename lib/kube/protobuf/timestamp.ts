import type { MessageCursor } from "./message_cursor.ts";

/** Returns a reader of times, which RFC 3339 text stands for in JSON. A message without fields is no time. */
export function timeReader(
  format: "time" | "micro time",
): (cursor: MessageCursor) => string | undefined {
  // Objects that were created together follow each other.
  let [lastSeconds, lastText] = [NaN, ""];
  const toText = format === "time" ? wholeSeconds : withoutZone;
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
    if (seconds !== lastSeconds) [lastSeconds, lastText] = [seconds, toText(seconds)];
    if (format === "time") return lastText;
    return `${lastText}.${String(Math.trunc(nanoseconds / 1000)).padStart(6, "0")}Z`;
  };
}

/** Throws a RangeError for times that RFC 3339 has no text for. */
function wholeSeconds(seconds: number): string {
  const text = new Date(seconds * 1000).toISOString();
  if (text.length !== "0000-00-00T00:00:00.000Z".length) {
    throw new RangeError(`${seconds} s is no time between the years 0 and 9999`);
  }
  // A pattern makes a text of its own; slice() and `${}` would keep their parts in memory.
  return text.replace(/\.000Z$/, "Z");
}

function withoutZone(seconds: number): string {
  return wholeSeconds(seconds).slice(0, -1);
}
