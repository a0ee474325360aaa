/**
 * Decodes the bytes of a watch into {@linkcode WatchEvent}s. In JSON, each line is an event; in protobuf,
 * each event has its length before it. Chunks may end anywhere: inside an event or a character, or after
 * many events.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { MAX_OBJECT, parseJson, TextPieces } from "./json_text.ts";
import { startReading } from "./object_reader.ts";
import { type Envelope, ProtobufCursor, readEnvelope } from "./protobuf.ts";

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

const TYPES: ReadonlySet<unknown> = new Set(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]);
const NEWLINE = 0x0a;
const MAX_EXCERPT = 80;
/** Most bytes of one object and the type of its event. */
const MAX_EVENT = MAX_OBJECT + 1024;

/**
 * Decodes a watch, in protobuf if the kind of its objects is given; yields the events of each chunk
 * together, because a promise for each event would cost more than to parse it. Each event is parsed on
 * request, so that a reader that pauses between two events blocks the event loop for one event at most. It
 * has to read all events of a chunk, and to use each before it requests the next one.
 *
 * Throws a {@linkcode WatchStreamError} at an event that is invalid or too long, or if the bytes end
 * within one.
 */
export async function* decodeWatch(
  chunks: AsyncIterable<Uint8Array>,
  protobufKind?: string,
): AsyncGenerator<Iterable<WatchEvent>, void, void> {
  const events = protobufKind === undefined ? new Lines() : new Messages(protobufKind);
  for await (const chunk of chunks) yield events.push(chunk);
  events.finish();
}

/** The events of a watch in JSON. */
class Lines {
  readonly #line = new TextPieces(
    MAX_EVENT,
    (most) => unreadable(`a line has more than ${most} bytes`),
  );

  *push(chunk: Uint8Array): Generator<WatchEvent, void, void> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const text = this.#line.take(chunk.subarray(start, end));
      start = end + 1;
      if (/[^ \t\r]/.test(text)) yield parseEvent(text);
    }
    this.#line.append(chunk.subarray(start));
  }

  finish(): void {
    if (this.#line.length === 0) return;
    throw unreadable(`the connection ended within the line '${excerpt(this.#line.take())}'`);
  }
}

function parseEvent(line: string): WatchEvent {
  let event: Partial<WatchEvent> | null;
  try {
    event = parseJson(line) as Partial<WatchEvent> | null;
  } catch (cause) {
    throw unreadable(`'${excerpt(line)}' is not JSON: ${messageOf(cause)}`, cause);
  }
  if (TYPES.has(event?.type) && event?.object !== undefined) return event as WatchEvent;
  throw unreadable(`'${excerpt(line)}' has no 'type' of a watch event and 'object'`);
}

function excerpt(line: string): string {
  return line.length <= MAX_EXCERPT ? line : `${line.slice(0, MAX_EXCERPT)}…`;
}

/** The length before each event is a number of four bytes, the highest one first. */
const LENGTH_BYTES = 4;
/** The tags of the fields of a `meta/v1` WatchEvent, and of its `runtime.RawExtension`. */
const TYPE = 0x0a;
const OBJECT = 0x12;
const RAW = 0x0a;

/** The events of a watch in protobuf. */
class Messages {
  readonly #event = new TextPieces(MAX_EVENT);
  readonly #reading = startReading();
  #length = 0;
  /** Bytes of the length that were read. */
  #lengthBytes = 0;

  /** `kind` is the kind of the objects. */
  constructor(private readonly kind: string) {}

  *push(chunk: Uint8Array): Generator<WatchEvent, void, void> {
    const cursor = new ProtobufCursor(chunk, this.#reading);
    for (let from = 0;;) {
      for (; this.#lengthBytes < LENGTH_BYTES && from < chunk.length; this.#lengthBytes++) {
        this.#length = this.#length * 256 + chunk[from++]!;
      }
      if (this.#length > MAX_EVENT) throw unreadable(`an event has ${this.#length} bytes`);
      const to = from + this.#length - this.#event.length;
      if (this.#lengthBytes < LENGTH_BYTES || to > chunk.length) {
        return this.#event.append(chunk.subarray(from));
      }
      this.#length = this.#lengthBytes = 0;
      yield this.#read(cursor, from, to);
      from = to;
    }
  }

  finish(): void {
    if (this.#lengthBytes > 0) throw unreadable("the connection ended within an event");
  }

  #read(chunk: ProtobufCursor, from: number, to: number): WatchEvent {
    let cursor = chunk;
    if (this.#event.length > 0) {
      const bytes = this.#event.takeBytes(chunk.source.subarray(from, to));
      cursor = new ProtobufCursor(bytes, this.#reading);
    } else {
      cursor.pos = from;
      cursor.end = to;
    }
    try {
      return readEvent(cursor, this.kind);
    } catch (cause) {
      if (cause instanceof WatchStreamError) throw cause;
      throw unreadable(`an event is not intact: ${messageOf(cause)}`, cause);
    }
  }
}

function readEvent(cursor: ProtobufCursor, kind: string): WatchEvent {
  let type = "";
  let envelope: Envelope | undefined;
  for (let tag; (tag = cursor.nextTag());) {
    if (tag === TYPE) {
      type = cursor.text(true);
    } else if (tag === OBJECT) {
      const outer = cursor.enter();
      for (let inner; (inner = cursor.nextTag());) {
        if (inner === RAW) {
          const extension = cursor.enter();
          envelope = readEnvelope(cursor);
          cursor.leave(extension);
        } else {
          cursor.pass();
        }
      }
      cursor.leave(outer);
    } else {
      cursor.pass();
    }
  }
  if (!TYPES.has(type) || envelope === undefined) {
    throw unreadable("an event has no 'type' of a watch event and 'object'");
  }
  const wanted = type === "ERROR" ? "Status" : kind;
  if (envelope.kind !== wanted) {
    throw unreadable(`an event holds an object of kind '${envelope.kind}', not ${wanted}`);
  }
  const object = type === "ERROR" ? envelope.object.status() : envelope.object;
  return { type: type as WatchEvent["type"], object };
}

function unreadable(reason: string, cause?: unknown): WatchStreamError {
  return new WatchStreamError(`Cannot read watch: ${reason}`, { cause });
}
