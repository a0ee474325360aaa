import { Buffer } from "node:buffer";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import type { Reading } from "../shape_error.ts";

/** A place in the bytes of a message, and the end of the message. */
export class MessageCursor extends BinaryReader {
  readonly source: Buffer;
  /** The end of the message that is being read. */
  end: number;
  /** Items of lists that were read of the current object. */
  items = 0;
  /** The tag of the current field, for {@linkcode pass}. */
  fieldTag = 0;
  reading: Reading;

  constructor(source: Uint8Array, reading: Reading) {
    super(source);
    this.source = Buffer.from(source.buffer, source.byteOffset, source.length);
    this.reading = reading;
    this.end = source.length;
  }

  /** Moves to a message. */
  moveTo({ from, to }: { readonly from: number; readonly to: number }): void {
    this.pos = from;
    this.end = to;
  }

  /**
   * Enters the message that begins here with its length; returns the end of the outer message, for
   * {@linkcode leave}. Throws a RangeError if it ends behind the outer one.
   */
  enter(): number {
    const outer = this.end;
    this.end = this.#endOfValue();
    return outer;
  }

  /** Throws a RangeError if the message was not read to its end exactly. */
  leave(outer: number): void {
    this.checkEnd();
    this.end = outer;
  }

  /** Throws a RangeError unless this is the end of the message. */
  checkEnd(): void {
    if (this.pos !== this.end) throw new RangeError("a value goes beyond the end of its message");
  }

  /** Whether there is another field before the end of the message; its tag is {@linkcode fieldTag}. */
  next(): boolean {
    if (this.pos >= this.end) return false;
    this.fieldTag = this.uint32();
    return true;
  }

  /** Passes over the value of the field. Unlike `skip()`, it creates no view of the bytes. */
  pass(): void {
    const { fieldTag: tag } = this;
    if (tag < 8) throw new RangeError("a field has the number 0");
    if ((tag & 7) !== WireType.LengthDelimited) {
      this.skip(tag & 7, tag >>> 3);
      return;
    }
    this.pos = this.#endOfValue();
  }

  /** Reads a text. The method of the base class makes an array for each. */
  text(): string {
    const to = this.#endOfValue();
    const text = this.source.toString("utf8", this.pos, to);
    this.pos = to;
    return text;
  }

  /** Reads a text of which there is one copy. */
  sharedText(): string {
    const { strings } = this.reading;
    const to = this.#endOfValue();
    const text = strings.ofBytes(this.source, { from: this.pos, to }) ??
      strings.internAscii(this.source.toString("utf8", this.pos, to));
    this.pos = to;
    return text;
  }

  /** Reads a length; returns the end of the value behind it. */
  #endOfValue(): number {
    const length = this.uint32();
    if (length > this.end - this.pos) throw new RangeError(`a length of ${length} is too large`);
    return this.pos + length;
  }
}
