import { LONGEST_OBJECT, TextPieces } from "../json_text.ts";
import { type ListMeta, ListStreamError, LONGEST_ENVELOPE } from "../list_stream.ts";
import { startReading } from "../shape_error.ts";
import { CONTENT_ENCODING, MAGIC, RAW, readKind, TYPE_META } from "./envelope.ts";
import { MessageCursor } from "./message_cursor.ts";
import { ProtobufObject } from "./protobuf_object.ts";

/** The tags of the fields of a list, and of its `meta/v1` ListMeta. */
const METADATA = 0x0a;
const ITEM = 0x12;
const RESOURCE_VERSION = 0x12;
const CONTINUE = 0x1a;

/**
 * As `ListDecoder`, for a list in protobuf. An item has to be used before the next one is requested.
 */
export class ProtobufListDecoder {
  readonly #kind: string;
  readonly #reading = startReading();
  readonly #value = new TextPieces(LONGEST_OBJECT);
  #magicBytes = 0;
  /** Bytes of the answer before the current chunk. */
  #before = 0;
  /** The number that is being read, and the factor of its next byte. */
  #number = 0;
  #factor = 1;
  /** The tag of the current field, and the length of its value, as soon as they are known. */
  #tag: number | undefined;
  #length: number | undefined;
  /** Whether the current field is one of the list, and not of the envelope. */
  #isInList = false;
  /** The end of the list in the answer, as soon as it has begun. */
  #listEnd: number | undefined;
  #isOfKind = false;
  /** Bytes besides the items. */
  #otherBytes = 0;
  #meta: ListMeta | undefined;

  /** `kind` is the kind of the items. */
  constructor(kind: string) {
    this.#kind = kind;
  }

  /**
   * Yields the items that end in this chunk. Must be run to its end before the next `push`. Throws
   * a {@linkcode ListStreamError} for an answer that is not a list of the kind.
   */
  *push(chunk: Uint8Array): Generator<unknown, void, void> {
    const cursor = new MessageCursor(chunk, this.#reading);
    let at = this.#readMagic(chunk);
    for (;;) {
      if (this.#length === undefined) at = this.#readHead(chunk, at);
      if (this.#length === undefined) break;
      const missing = this.#length - this.#value.length;
      if (chunk.length - at < missing) {
        this.#value.append(chunk.subarray(at));
        break;
      }
      const item = this.#take(cursor, { from: at, to: at + missing });
      if (item !== undefined) yield item;
      at += missing;
    }
    this.#before += chunk.length;
  }

  /** Returns the metadata of the list. Throws a {@linkcode ListStreamError} if it is incomplete. */
  finish(): ListMeta {
    const isWhole = this.#listEnd !== undefined && this.#before >= this.#listEnd &&
      this.#tag === undefined && this.#factor === 1;
    if (!isWhole) throw unreadable("it was cut short or is not protobuf");
    if (this.#meta === undefined) {
      throw unreadable("it has no metadata.resourceVersion; an API server always sends one");
    }
    return this.#meta;
  }

  #readMagic(chunk: Uint8Array): number {
    let at = 0;
    while (this.#magicBytes < MAGIC.length && at < chunk.length) {
      if (chunk[at++] !== MAGIC[this.#magicBytes++]) {
        throw unreadable("it does not begin with 'k8s'");
      }
    }
    return at;
  }

  /** Reads up to the value of a field, if the chunk reaches it; returns the place after that. */
  #readHead(chunk: Uint8Array, from: number): number {
    let at = from;
    while (at < chunk.length && this.#length === undefined) {
      const byte = chunk[at++]!;
      this.#number += (byte & 127) * this.#factor;
      this.#factor *= 128;
      if (this.#number >= 2 ** 32) throw unreadable("a number in it is too large");
      if (byte > 127) continue;
      const number = this.#number;
      [this.#number, this.#factor] = [0, 1];
      if (this.#tag === undefined) this.#beginField(number, this.#before + at);
      else this.#beginValue(number, this.#before + at);
    }
    return at;
  }

  #beginField(tag: number, at: number): void {
    // Every field of an envelope and of a list is a text or a message.
    if ((tag & 7) !== 2 || tag < 8) throw unreadable(`it has a field with the tag ${tag}`);
    this.#tag = tag;
    this.#isInList = this.#listEnd !== undefined && at <= this.#listEnd;
  }

  #beginValue(length: number, at: number): void {
    if (!this.#isInList && this.#tag === RAW) {
      if (this.#listEnd !== undefined || !this.#isOfKind) {
        throw unreadable("it has two lists, or its kind does not come first");
      }
      this.#listEnd = at + length;
      this.#tag = undefined;
      return;
    }
    if (this.#isInList && at + length > this.#listEnd!) {
      throw unreadable("a value goes beyond its end");
    }
    const isItem = this.#isInList && this.#tag === ITEM;
    if (length > LONGEST_OBJECT) throw unreadable(`an item has more than ${LONGEST_OBJECT} bytes`);
    if (!isItem) this.#otherBytes += length;
    if (this.#otherBytes > LONGEST_ENVELOPE) {
      throw unreadable(`it has more than ${LONGEST_ENVELOPE} bytes besides its items`);
    }
    this.#length = length;
  }

  /** Takes the value of a field that ends in this chunk; returns it if it is an item. */
  #take(
    chunk: MessageCursor,
    { from, to }: { readonly from: number; readonly to: number },
  ): ProtobufObject | undefined {
    const tag = this.#tag;
    this.#tag = this.#length = undefined;
    let value = chunk;
    if (this.#value.length > 0) {
      value = new MessageCursor(
        this.#value.takeBytes(chunk.source.subarray(from, to)),
        this.#reading,
      );
    } else {
      value.moveTo({ from, to });
    }
    if (this.#isInList && tag === ITEM) {
      return new ProtobufObject(value, { from: value.pos, to: value.end });
    }
    this.#readOther(tag, value);
    return undefined;
  }

  #readOther(tag: number | undefined, value: MessageCursor): void {
    try {
      if (this.#isInList) {
        if (tag === METADATA) this.#meta = readListMeta(value);
      } else if (tag === TYPE_META) {
        this.#checkKind(readKind(value));
      } else if (tag === CONTENT_ENCODING && value.pos < value.end) {
        throw unreadable("it has an unknown content encoding");
      }
    } catch (cause) {
      if (cause instanceof ListStreamError) throw cause;
      throw new ListStreamError("Cannot read list: it is not intact", { cause });
    }
  }

  /** Another object than a list of the kind would be taken for an empty list. */
  #checkKind(kind: string): void {
    if (kind !== `${this.#kind}List`) throw unreadable(`it is a ${kind}, not a ${this.#kind}List`);
    this.#isOfKind = true;
  }
}

function readListMeta(cursor: MessageCursor): ListMeta | undefined {
  let [version, next] = ["", ""];
  while (cursor.next()) {
    if (cursor.fieldTag === RESOURCE_VERSION) version = cursor.text();
    else if (cursor.fieldTag === CONTINUE) next = cursor.text();
    else cursor.pass();
  }
  cursor.checkEnd();
  if (version === "") return undefined;
  return { resourceVersion: version, continue: next === "" ? undefined : next };
}

function unreadable(reason: string): ListStreamError {
  return new ListStreamError(`Cannot read list: ${reason}`);
}
