/**
 * Bytes of a watch response → {@linkcode WatchEvent}s. A watch is one JSON object a line, cut into
 * chunks anywhere: in the middle of a line, of a character, or many lines in one chunk.
 *
 * @module
 */

/** One line of a watch. `object` is the raw object, or a `Status` when the type is `ERROR`. */
export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  readonly object: unknown;
}

/** A line of a watch that is no event. The events before it were delivered and stay valid. */
export class WatchStreamError extends Error {
  override name = "WatchStreamError";
}

const EVENT_TYPES: ReadonlySet<unknown> = new Set([
  "ADDED",
  "MODIFIED",
  "DELETED",
  "BOOKMARK",
  "ERROR",
]);
const NEWLINE = 0x0a;
const WHOLE_TEXT_DECODER = new TextDecoder();
const LONGEST_EXCERPT = 80;

/**
 * Decodes a watch. Each event is parsed only when it is asked for, so that a reader that pauses
 * between two events holds up the event loop for one event at most.
 *
 * Throws a {@linkcode WatchStreamError} at a line that is no event, or when the bytes end within a line.
 */
export async function* decodeWatch(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<WatchEvent, void, void> {
  // The parts of an unfinished line are joined once, at its end: joining at each chunk would make
  // a long line cost the square of its length.
  let pending: Uint8Array[] = [];
  for await (const chunk of chunks) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(NEWLINE, start);
      if (end === -1) break;
      pending.push(chunk.subarray(start, end));
      const text = decodeParts(pending);
      pending = [];
      start = end + 1;
      if (text.trim() !== "") yield parseEvent(text);
    }
    // A copy: the sender may use the chunk's memory again.
    if (start < chunk.length) pending.push(chunk.slice(start));
  }
  if (pending.length > 0) {
    throw new WatchStreamError(
      `Cannot read watch: the connection ended within the line '${excerpt(decodeParts(pending))}'`,
    );
  }
}

/** Joins the parts of one text; a character may be cut between two of them. */
export function decodeParts(parts: readonly Uint8Array[]): string {
  if (parts.length === 1) return WHOLE_TEXT_DECODER.decode(parts[0]);
  const decoder = new TextDecoder();
  let text = "";
  for (const part of parts) text += decoder.decode(part, { stream: true });
  return text + decoder.decode();
}

function parseEvent(line: string): WatchEvent {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch (cause) {
    throw new WatchStreamError(`Cannot read watch: '${excerpt(line)}' is not JSON`, { cause });
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
