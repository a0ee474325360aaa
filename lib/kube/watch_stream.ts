/**
 * Decodes the bytes of a watch response into {@linkcode WatchEvent}s. A watch has one JSON object
 * per line; chunks may end anywhere: inside a line or a character, or after many lines.
 *
 * @module
 */

import { messageOf } from "../log/message_of.ts";
import { LONGEST_OBJECT, parseJson, TextPieces } from "./json_text.ts";

/** One event of a watch. `object` is the raw object, or a `Status` when the type is `ERROR`. */
export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  readonly object: unknown;
}

/**
 * An invalid or unterminated event of a watch. The events before it were delivered and stay valid.
 */
export class WatchStreamError extends Error {
  override name = "WatchStreamError";
}

/** The types of events. */
export const EVENT_TYPES: ReadonlySet<unknown> = new Set([
  "ADDED",
  "MODIFIED",
  "DELETED",
  "BOOKMARK",
  "ERROR",
]);
const NEWLINE = 0x0a;
const BLANK = /^[ \t\r]*$/;
const LONGEST_EXCERPT = 80;
/** Most bytes of one object and the type of its event. */
export const LONGEST_LINE = LONGEST_OBJECT + 1024;

/**
 * Decodes a watch; yields the events of each chunk together, because a promise for each event would
 * cost more than to parse it. Each event is parsed on request, so that a reader that pauses between
 * two events blocks the event loop for one event at most. It has to read all events of a chunk.
 *
 * Throws a {@linkcode WatchStreamError} at a line that is invalid or too long, or if the bytes end
 * within a line.
 */
export async function* decodeWatch(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Iterable<WatchEvent>, void, void> {
  const line = new TextPieces(LONGEST_LINE, (most) => {
    return new WatchStreamError(`Cannot read watch: a line has more than ${most} bytes`);
  });
  for await (const chunk of chunks) yield decodeLines(chunk, line);
  if (line.length > 0) {
    throw new WatchStreamError(
      `Cannot read watch: the connection ended within the line '${excerpt(line.take())}'`,
    );
  }
}

function* decodeLines(chunk: Uint8Array, line: TextPieces): Generator<WatchEvent, void, void> {
  let start = 0;
  for (;;) {
    const end = chunk.indexOf(NEWLINE, start);
    if (end === -1) break;
    const isEmpty = line.length === 0 && end === start;
    const text = isEmpty ? "" : line.take(chunk.subarray(start, end));
    start = end + 1;
    if (!BLANK.test(text)) yield parseEvent(text);
  }
  line.append(chunk.subarray(start));
}

function parseEvent(line: string): WatchEvent {
  let event: unknown;
  try {
    event = parseJson(line);
  } catch (cause) {
    const what = `'${excerpt(line)}' is not JSON: ${messageOf(cause)}`;
    throw new WatchStreamError(`Cannot read watch: ${what}`, { cause });
  }
  if (
    typeof event !== "object" || event === null || !("type" in event) || !("object" in event) ||
    !EVENT_TYPES.has(event.type)
  ) {
    throw new WatchStreamError(
      `Cannot read watch: '${excerpt(line)}' has no 'type' of a watch event and 'object'`,
    );
  }
  return event as WatchEvent;
}

function excerpt(line: string): string {
  return line.length <= LONGEST_EXCERPT ? line : `${line.slice(0, LONGEST_EXCERPT)}…`;
}
