/**
 * The envelope of every object that an API server sends in protobuf: four bytes, and a
 * `runtime.Unknown` with the kind and the bytes of the object.
 *
 * @module
 */
import { startReading } from "../shape_error.ts";
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
  let from = cursor.pos;
  let to = cursor.pos;
  while (cursor.next()) {
    const { fieldTag: tag } = cursor;
    if (tag === TYPE_META) {
      const outer = cursor.enter();
      kind = readKind(cursor);
      cursor.leave(outer);
    } else if (tag === RAW) {
      const outer = cursor.enter();
      from = cursor.pos;
      to = cursor.end;
      cursor.moveTo({ from: to, to: outer });
    } else {
      const before = cursor.pos;
      cursor.pass();
      if (tag === CONTENT_ENCODING && cursor.pos - before > 1) {
        throw new RangeError("its object has an unknown content encoding");
      }
    }
  }
  cursor.checkEnd();
  return { kind, object: new ProtobufObject(cursor, { from, to }) };
}

/** Reads the kind of a `runtime.TypeMeta` between the cursor and its end. */
export function readKind(cursor: MessageCursor): string {
  let kind = "";
  while (cursor.next()) {
    if (cursor.fieldTag === KIND) kind = cursor.sharedText();
    else cursor.pass();
  }
  cursor.checkEnd();
  return kind;
}

/** Reads a `Status` for an error. Returns `undefined` if the bytes are none in protobuf. */
export function tryReadStatus(bytes: Uint8Array): unknown {
  try {
    const { kind, object } = readEnvelope(new MessageCursor(bytes, startReading()));
    return kind === "Status" ? readStatus(object) : undefined;
  } catch {
    return undefined;
  }
}

/** Reads an object as a `Status`. */
export function readStatus(object: ProtobufObject): unknown {
  return object.read(STATUS, startReading());
}
