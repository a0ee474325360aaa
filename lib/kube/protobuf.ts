/**
 * Objects in protobuf, and the envelope in which an API server sends each of them: four bytes, and a
 * `runtime.Unknown` with the kind and the bytes of the object.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import * as v from "valibot";
import type { ObjectMeta } from "../api/kind.ts";
import { at, fields, list, namedTexts, text, wholeNumber } from "../api/schema.ts";
import {
  type Cursor,
  type Field,
  type Mark,
  type Reading,
  readObject,
  type Shape,
  ShapeError,
  startReading,
  type Texts,
  WANTED,
} from "./object_reader.ts";

/** The media type; watches have a parameter `stream=watch`. */
export const PROTOBUF = "application/vnd.kubernetes.protobuf";

/** An annotation of the bookmark that ends a streaming list. */
export const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

/** A place in the bytes of a message, and the end of the message. */
export class ProtobufCursor extends BinaryReader implements Cursor {
  readonly hasZeros = true;
  readonly source: Buffer;
  items = 0;
  /** The end of the message that is being read. */
  end: number;
  /** The tag of the current field. */
  fieldTag = 0;

  constructor(source: Uint8Array, public reading: Reading) {
    super(source);
    this.source = Buffer.from(source.buffer, source.byteOffset, source.length);
    this.end = source.length;
  }

  enter(): number {
    const outer = this.end;
    this.end = this.#endOfValue();
    return outer;
  }

  leave(outer: number): void {
    if (this.pos !== this.end) throw new RangeError("a value goes beyond the end of its message");
    this.end = outer;
  }

  abandon(outer: number, { end }: Mark): void {
    this.pos = end as number;
    this.end = outer;
  }

  mark(): Mark {
    return { pos: this.pos, end: this.end, fieldTag: this.fieldTag };
  }

  reset(mark: Mark): void {
    Object.assign(this, mark);
  }

  next({ byNumber }: Shape, unknown?: Set<string>): Field | undefined {
    for (let tag; (tag = this.nextTag());) {
      const number = tag >>> 3;
      const field = byNumber[number];
      if (field !== undefined) return field;
      unknown?.add(`field ${number}`);
      this.pass();
    }
    return undefined;
  }

  check({ type, isVarint }: Field): void {
    const wire = this.fieldTag & 7;
    if (wire === (isVarint ? WireType.Varint : WireType.LengthDelimited)) return;
    throw new ShapeError("", `wire type ${wire}`, WANTED[type]);
  }

  hasItem(): boolean {
    return true;
  }

  /** Moves to the value of the next field; returns its tag, or 0 at the end of the message. */
  nextTag(): number {
    if (this.pos >= this.end) {
      if (this.pos > this.end) throw new RangeError("a value goes beyond the end of its message");
      return 0;
    }
    this.fieldTag = this.#shortNumber();
    if (this.fieldTag < 8) throw new RangeError("a field has the number 0");
    return this.fieldTag;
  }

  /** Unlike `skip()`, it creates no view of the bytes. */
  pass(): void {
    const { fieldTag: tag } = this;
    if ((tag & 7) === WireType.LengthDelimited) this.pos = this.#endOfValue();
    else this.skip(tag & 7, tag >>> 3);
  }

  /** The method of the base class makes an array for each. */
  text(isShared: boolean): string {
    const to = this.#endOfValue();
    const { strings } = this.reading;
    const text = isShared ? strings.ofBytes(this.source, this.pos, to) : undefined;
    const read = text ?? this.source.toString("utf8", this.pos, to);
    this.pos = to;
    return isShared && text === undefined ? strings.internAscii(read) : read;
  }

  number(): number {
    return this.int32();
  }

  flag(): boolean {
    return this.bool();
  }

  /** Reads an `IntOrString`. */
  numberOrText(): number | string {
    const outer = this.enter();
    let [type, number, text] = [0, 0, ""];
    for (let tag; (tag = this.nextTag());) {
      if (tag === 8) type = this.int32();
      else if (tag === 16) number = this.int32();
      else if (tag === 26) text = this.text(true);
      else this.pass();
    }
    this.leave(outer);
    return type === 1 ? text : number;
  }

  /** A message without fields is no time. */
  time(format: "time" | "micro time"): string | undefined {
    const outer = this.enter();
    const isAbsent = this.pos === this.end;
    let [seconds, nanoseconds] = [0, 0];
    for (let tag; (tag = this.nextTag());) {
      if (tag === 8) seconds = Number(this.int64());
      else if (tag === 16) nanoseconds = this.int32();
      else this.pass();
    }
    this.leave(outer);
    if (isAbsent) return undefined;
    const text = this.reading.strings.timeOf(seconds);
    if (format === "time") return text;
    const micro = String(Math.trunc(nanoseconds / 1000)).padStart(6, "0");
    return text.replace(/Z$/, `.${micro}Z`);
  }

  /** Reads an entry of a map. Many objects share its names and values. */
  entries(names: readonly string[] | "all", former: Texts | undefined): Texts | undefined {
    const outer = this.enter();
    let name = "";
    // Most values are not read: only the place of this one is kept until the name is known.
    let valueAt: number | undefined;
    for (let tag; (tag = this.nextTag());) {
      // Most names are not wanted: they are not read if no wanted one has their length.
      if (tag === 0x0a && (names === "all" || this.#mayBe(names))) {
        name = this.text(true);
        continue;
      }
      if (tag === 0x12) valueAt = this.pos;
      this.pass();
    }
    this.leave(outer);
    if (names !== "all" && !names.includes(name)) return former;
    const found = former ?? {};
    const { pos } = this;
    found[name] = "";
    if (valueAt !== undefined) {
      this.pos = valueAt;
      this.fieldTag = 0x12;
      found[name] = this.text(names === "all");
      this.pos = pos;
    }
    return found;
  }

  /** Whether the text at the cursor is as long as one of these. */
  #mayBe(names: readonly string[]): boolean {
    const length = this.source[this.pos]!;
    for (const name of names) if (name.length === length || name.length > 127) return true;
    return false;
  }

  /** As `uint32()`, faster for a number of one byte, as nearly all tags and lengths are. */
  #shortNumber(): number {
    const byte = this.source[this.pos]!;
    if (!(byte < 0x80)) return this.uint32();
    this.pos++;
    return byte;
  }

  /** Reads a length; returns the end of the value behind it. */
  #endOfValue(): number {
    const wire = this.fieldTag & 7;
    if (wire !== WireType.LengthDelimited) {
      throw new RangeError(`a field has the wire type ${wire}`);
    }
    const length = this.#shortNumber();
    if (length > this.end - this.pos) throw new RangeError(`a length of ${length} is too large`);
    return this.pos + length;
  }
}

/** The tag of the metadata of every object. */
const METADATA = 0x0a;

/** The metadata that the events of a watch need; bookmarks have no name. */
const ANY_METADATA = fields({
  name: at(1, v.nullish(text)),
  namespace: at(3, v.nullish(text)),
  resourceVersion: at(6, v.nullish(text)),
  annotations: at(12, namedTexts([INITIAL_EVENTS_END])),
});

const number = v.nullish(
  wholeNumber(0, 2 ** 31 - 1, "has to be a whole number"),
);

/** The fields of a `meta/v1` Status that errors need. */
const STATUS = fields({
  message: at(3, v.nullish(text)),
  reason: at(4, v.nullish(text)),
  details: at(
    5,
    v.nullish(fields({
      causes: at(4, list(fields({ reason: at(1, v.nullish(text)) }))),
      retryAfterSeconds: at(5, number),
    })),
  ),
  code: at(6, number),
});

/** An object in protobuf. It has to be read before its bytes are used for the next one. */
export class ProtobufObject {
  constructor(
    private readonly cursor: ProtobufCursor,
    private readonly from: number,
    private readonly to: number,
  ) {}

  /** Returns the cursor at the beginning of the object. */
  begin(reading = startReading()): ProtobufCursor {
    const { cursor } = this;
    cursor.pos = this.from;
    cursor.end = this.to;
    cursor.items = 0;
    cursor.reading = reading;
    return cursor;
  }

  /** Returns the metadata that the events of a watch need; empty if it cannot be read. */
  metadata(): Partial<ObjectMeta> {
    const cursor = this.begin();
    try {
      for (let tag; (tag = cursor.nextTag());) {
        // Whatever follows it may be damaged.
        if (tag === METADATA) {
          cursor.enter();
          return readObject(ANY_METADATA, cursor) as Partial<ObjectMeta>;
        }
        cursor.pass();
      }
    } catch {
      // As without metadata.
    }
    return {};
  }

  /** Reads the object as a `Status`. */
  status(): unknown {
    return readObject(STATUS, this.begin());
  }
}

/** The tags of the fields of an envelope, and of the kind in its `runtime.TypeMeta`. */
const TYPE_META = 0x0a;
const RAW = 0x12;
const CONTENT_ENCODING = 0x1a;
const KIND = 0x12;

/** What an envelope holds. */
export interface Envelope {
  readonly kind: string;
  readonly object: ProtobufObject;
}

/** Reads the envelope between the cursor and its end. Throws an Error with the reason. */
export function readEnvelope(cursor: ProtobufCursor): Envelope {
  const { source, pos, end } = cursor;
  if (source.toString("latin1", pos, Math.min(end, pos + 4)) !== "k8s\0") {
    throw new RangeError("it does not begin with 'k8s'");
  }
  cursor.pos += 4;
  let kind = "";
  let [from, to] = [cursor.pos, cursor.pos];
  for (let tag; (tag = cursor.nextTag());) {
    const outer = cursor.enter();
    if (tag === TYPE_META) {
      for (let inner; (inner = cursor.nextTag());) {
        if (inner === KIND) kind = cursor.text(true);
        else cursor.pass();
      }
    } else if (tag === RAW) {
      [from, to] = [cursor.pos, cursor.end];
    } else if (tag === CONTENT_ENCODING && cursor.pos < cursor.end) {
      throw new RangeError("its object has an unknown content encoding");
    }
    cursor.pos = cursor.end;
    cursor.leave(outer);
  }
  return { kind, object: new ProtobufObject(cursor, from, to) };
}

/** Reads a `Status` for an error. Returns `undefined` if the bytes are none in protobuf. */
export function tryReadStatus(bytes: Uint8Array): unknown {
  try {
    const { kind, object } = readEnvelope(new ProtobufCursor(bytes, startReading()));
    return kind === "Status" ? object.status() : undefined;
  } catch {
    return undefined;
  }
}
