import { messageOf } from "../../log/message_of.ts";
import { TextPieces } from "../json_text.ts";
import { startReading } from "../shape_error.ts";
import { EVENT_TYPES, LONGEST_LINE, type WatchEvent, WatchStreamError } from "../watch_stream.ts";
import { type Envelope, readEnvelope, readStatus } from "./envelope.ts";
import { MessageCursor } from "./message_cursor.ts";

/** The length before each event is a number of four bytes, the highest one first. */
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
): AsyncGenerator<Iterable<WatchEvent>, void, void> {
  const frames = new Frames(kind);
  for await (const chunk of chunks) yield frames.push(chunk);
  frames.finish();
}

/** Splits a watch into its events. */
class Frames {
  readonly #kind: string;
  readonly #frame = new TextPieces(LONGEST_LINE);
  readonly #reading = startReading();
  #length = 0;
  /** Bytes of the length that were read. */
  #lengthBytes = 0;

  constructor(kind: string) {
    this.#kind = kind;
  }

  *push(chunk: Uint8Array): Generator<WatchEvent, void, void> {
    const cursor = new MessageCursor(chunk, this.#reading);
    let from = this.#readLength(chunk, 0);
    while (this.#lengthBytes === LENGTH_BYTES) {
      const to = from + this.#length - this.#frame.length;
      if (to > chunk.length) break;
      this.#length = this.#lengthBytes = 0;
      yield this.#readEvent(cursor, { from, to });
      from = this.#readLength(chunk, to);
    }
    this.#frame.append(chunk.subarray(from));
  }

  /** Throws a WatchStreamError if the watch ended within an event. */
  finish(): void {
    if (this.#lengthBytes === 0) return;
    throw new WatchStreamError("Cannot read watch: the connection ended within an event");
  }

  /** Reads on the length; returns the place behind what it read. */
  #readLength(chunk: Uint8Array, from: number): number {
    let at = from;
    for (; this.#lengthBytes < LENGTH_BYTES && at < chunk.length; this.#lengthBytes++) {
      this.#length = this.#length * 256 + chunk[at++]!;
    }
    if (this.#length <= LONGEST_LINE) return at;
    throw new WatchStreamError(`Cannot read watch: an event has ${this.#length} bytes`);
  }

  #readEvent(
    chunk: MessageCursor,
    { from, to }: { readonly from: number; readonly to: number },
  ): WatchEvent {
    let cursor = chunk;
    if (this.#frame.length > 0) {
      const frame = this.#frame.takeBytes(chunk.source.subarray(from, to));
      cursor = new MessageCursor(frame, this.#reading);
    } else {
      cursor.moveTo({ from, to });
    }
    try {
      return readFrame(cursor, this.#kind);
    } catch (cause) {
      const message = `Cannot read watch: an event is not intact: ${messageOf(cause)}`;
      throw cause instanceof WatchStreamError ? cause : new WatchStreamError(message, { cause });
    }
  }
}

function readFrame(cursor: MessageCursor, kind: string): WatchEvent {
  let type = "";
  let envelope: Envelope | undefined;
  while (cursor.next()) {
    if (cursor.fieldTag === TYPE) {
      type = cursor.sharedText();
    } else if (cursor.fieldTag === OBJECT) {
      const outer = cursor.enter();
      envelope = readRaw(cursor);
      cursor.leave(outer);
    } else {
      cursor.pass();
    }
  }
  cursor.checkEnd();
  if (!EVENT_TYPES.has(type) || envelope === undefined) {
    throw new WatchStreamError(
      "Cannot read watch: an event has no 'type' of a watch event and 'object'",
    );
  }
  const isError = type === "ERROR";
  const wanted = isError ? "Status" : kind;
  if (envelope.kind !== wanted) {
    throw new WatchStreamError(
      `Cannot read watch: an event holds an object of kind '${envelope.kind}', not ${wanted}`,
    );
  }
  const object = isError ? readStatus(envelope.object) : envelope.object;
  return { type: type as WatchEvent["type"], object };
}

/** Reads a `runtime.RawExtension` between the cursor and its end. */
function readRaw(cursor: MessageCursor): Envelope | undefined {
  let found: Envelope | undefined;
  while (cursor.next()) {
    if (cursor.fieldTag === RAW) {
      const outer = cursor.enter();
      found = readEnvelope(cursor);
      cursor.leave(outer);
    } else {
      cursor.pass();
    }
  }
  return found;
}
