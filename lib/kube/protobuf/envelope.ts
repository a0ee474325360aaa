/**
 * The envelope of every object that an API server sends in protobuf: four bytes, and a
 * `runtime.Unknown` with the kind and the bytes of the object.
 *
 * @module
 */
import { StringTable } from "../string_table.ts";
import { MessageCursor } from "./message_cursor.ts";
import { ProtobufObject } from "./protobuf_object.ts";
import { STATUS } from "./status.ts";

/** The media type; watches have a parameter `stream=watch`. */
export const PROTOBUF = "application/vnd.kubernetes.protobuf";

/** The first bytes of an envelope: `k8s` and a zero. */
export const MAGIC: readonly number[] = [0x6b, 0x38, 0x73, 0x00];

/** The tags of the fields of an envelope. */
export const TYPE_META = 0x0a;
export const RAW = 0x12;
export const CONTENT_ENCODING = 0x1a;

/** The tag of the kind in a `runtime.TypeMeta`. */
const KIND = 0x12;

/** What an envelope holds. */
export interface Envelope {
  readonly kind: string;
  readonly object: ProtobufObject;
}

/** Reads the envelope between the cursor and its end. Throws an Error with the reason. */
export function readEnvelope(cursor: MessageCursor): Envelope {
  for (const byte of MAGIC) {
    if (cursor.pos === cursor.end || cursor.source[cursor.pos++] !== byte) {
      throw new RangeError("it does not begin with 'k8s'");
    }
  }
  let kind = "";
  let [from, to] = [cursor.pos, cursor.pos];
  while (cursor.pos < cursor.end) {
    const tag = cursor.uint32();
    const outer = tag === TYPE_META || tag === RAW ? cursor.enter() : undefined;
    if (outer === undefined) {
      checkEncoding(cursor, tag);
      continue;
    }
    if (tag === TYPE_META) kind = readKind(cursor);
    else [from, to] = [cursor.pos, cursor.end];
    cursor.pos = cursor.end;
    cursor.end = outer;
  }
  cursor.checkEnd();
  return { kind, object: new ProtobufObject(cursor, { from, to }) };
}

/** Reads the kind of a `runtime.TypeMeta` between the cursor and its end. */
export function readKind(cursor: MessageCursor): string {
  let kind = "";
  while (cursor.pos < cursor.end) {
    const tag = cursor.uint32();
    if (tag === KIND) kind = cursor.string();
    else cursor.pass(tag);
  }
  cursor.checkEnd();
  return kind;
}

/** Reads a `Status` for an error. Returns `undefined` if the bytes are none in protobuf. */
export function tryReadStatus(bytes: Uint8Array): unknown {
  try {
    const { kind, object } = readEnvelope(new MessageCursor(bytes));
    return kind === "Status" ? readStatus(object) : undefined;
  } catch {
    return undefined;
  }
}

/** Reads an object as a `Status`. */
export function readStatus(object: ProtobufObject): unknown {
  return object.read(STATUS, { strings: new StringTable(), errors: [] });
}

/** Passes over a field of an envelope; an object may not be encoded once more. */
function checkEncoding(cursor: MessageCursor, tag: number): void {
  const { pos } = cursor;
  cursor.pass(tag);
  if (tag === CONTENT_ENCODING && cursor.pos - pos > 1) {
    throw new RangeError("its object has an unknown content encoding");
  }
}
