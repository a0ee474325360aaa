import { messageOf } from "../../log/message_of.ts";
import { TextPieces } from "../json_text.ts";
import { EVENT_TYPES, LONGEST_LINE, type WatchEvent, WatchStreamError } from "../watch_stream.ts";
import { readEnvelope, readStatus } from "./envelope.ts";
import { MessageCursor } from "./message_cursor.ts";

/** Each event follows its length, which is a number of four bytes, the first one the highest. */
const LENGTH_BYTES = 4;
/** The tags of the fields of a `meta/v1` WatchEvent, and of its `runtime.RawExtension`. */
const TYPE = 0x0a;
const OBJECT = 0x12;
const RAW = 0x0a;

/**
 * As `decodeWatch()`, for a watch in protobuf. An event has to be used before the next one is
 * requested.
 */
export async function* decodeProtobufWatch(
  chunks: AsyncIterable<Uint8Array>,
  kind: string,
): AsyncGenerator<WatchEvent, void, void> {
  const frame = new TextPieces(LONGEST_LINE);
  let [length, lengthBytes] = [0, 0];
  for await (const chunk of chunks) {
    const cursor = new MessageCursor(chunk);
    let at = 0;
    for (;;) {
      while (lengthBytes < LENGTH_BYTES && at < chunk.length) {
        length = length * 256 + chunk[at++]!;
        lengthBytes++;
      }
      if (lengthBytes < LENGTH_BYTES) break;
      if (length > LONGEST_LINE) {
        throw new WatchStreamError(`Cannot read watch: an event has ${length} bytes`);
      }
      const missing = length - frame.length;
      if (chunk.length - at < missing) break;
      const from = at;
      at += missing;
      [length, lengthBytes] = [0, 0];
      if (frame.length > 0) {
        yield readEvent(new MessageCursor(frame.takeBytes(chunk.subarray(from, at))), kind);
      } else {
        cursor.pos = from;
        cursor.end = at;
        yield readEvent(cursor, kind);
      }
    }
    frame.append(chunk.subarray(at));
  }
  if (lengthBytes > 0) {
    throw new WatchStreamError("Cannot read watch: the connection ended within an event");
  }
}

function readEvent(cursor: MessageCursor, kind: string): WatchEvent {
  try {
    return readFrame(cursor, kind);
  } catch (cause) {
    const message = `Cannot read watch: an event is not intact: ${messageOf(cause)}`;
    throw cause instanceof WatchStreamError ? cause : new WatchStreamError(message, { cause });
  }
}

function readFrame(cursor: MessageCursor, kind: string): WatchEvent {
  let type = "";
  let object: ReturnType<typeof readEnvelope> | undefined;
  while (cursor.pos < cursor.end) {
    const tag = cursor.uint32();
    if (tag === TYPE) {
      type = cursor.string();
    } else if (tag === OBJECT) {
      const outer = cursor.enter();
      object = readRaw(cursor);
      cursor.leave(outer);
    } else {
      cursor.pass(tag);
    }
  }
  cursor.checkEnd();
  if (!EVENT_TYPES.has(type) || object === undefined) {
    throw new WatchStreamError(
      "Cannot read watch: an event has no 'type' of a watch event and 'object'",
    );
  }
  const wanted = type === "ERROR" ? "Status" : kind;
  if (object.kind !== wanted) throw new RangeError(`its object is no ${wanted}`);
  return {
    type: type as WatchEvent["type"],
    object: type === "ERROR" ? readStatus(object.object) : object.object,
  };
}

/** Reads a `runtime.RawExtension` between the cursor and its end. */
function readRaw(cursor: MessageCursor): ReturnType<typeof readEnvelope> | undefined {
  let found: ReturnType<typeof readEnvelope> | undefined;
  while (cursor.pos < cursor.end) {
    const tag = cursor.uint32();
    if (tag === RAW) {
      const outer = cursor.enter();
      found = readEnvelope(cursor);
      cursor.leave(outer);
    } else {
      cursor.pass(tag);
    }
  }
  return found;
}
