import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import type { Reading } from "../shape_error.ts";

/** A place in the bytes of a message, and the end of the message. */
export class MessageCursor extends BinaryReader {
  readonly source: Uint8Array;
  /** The end of the message that is being read. */
  end: number;
  /** Items of lists that were read of the current object. */
  items = 0;
  reading: Reading | undefined;

  constructor(source: Uint8Array) {
    super(source);
    this.source = source;
    this.end = source.length;
  }

  /**
   * Enters the message that begins here with its length; returns the end of the outer message, for
   * {@linkcode leave}. Throws a RangeError if it ends behind the outer one.
   */
  enter(): number {
    const outer = this.end;
    const length = this.uint32();
    if (length > outer - this.pos) throw new RangeError(`a length of ${length} is too large`);
    this.end = this.pos + length;
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

  /** Passes over a value. Unlike `skip()`, it creates no view of the bytes. */
  pass(tag: number): void {
    const [number, type] = [tag >>> 3, tag & 7];
    if (number === 0) throw new RangeError("a field has the number 0");
    if (type === WireType.LengthDelimited) {
      const outer = this.enter();
      this.pos = this.end;
      this.end = outer;
    } else {
      this.skip(type, number);
    }
  }

  /** Reads a text of which there is one copy. */
  sharedText(): string {
    const { strings } = this.reading!;
    const start = this.pos;
    const outer = this.enter();
    const known = strings.ofBytes(this.source, { from: this.pos, to: this.end });
    if (known === undefined) this.pos = start;
    else this.pos = this.end;
    this.end = outer;
    return known ?? strings.internAscii(this.string());
  }
}
