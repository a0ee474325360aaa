import { assertEquals, assertThrows } from "@std/assert";
import { encodeFrame, FrameReader } from "./message_frames.ts";

/** What is sent, and what arrives if that is something else. */
const MESSAGES: readonly (readonly [sent: unknown, arrived?: unknown])[] = [
  ["é\u0000\u{1f600}"],
  [[1, null, { a: [], b: {} }]],
  [new Map<unknown, unknown>([["a", new Set([1, new Map()])], [2, { set: new Set() }]])],
  [{ set: [], map: [1] }],
  [{ a: undefined, b: 1 }, { b: 1 }],
  [{ error: new TypeError("no") }, { error: "no" }],
];

Deno.test("FrameReader puts messages together from pieces of any size", () => {
  const bytes = MESSAGES.flatMap(([sent]) => [...encodeFrame(sent)]);
  for (const size of [1, 2, 3, 5, 64, bytes.length]) {
    const arrived: unknown[] = [];
    const reader = new FrameReader(1000, (message) => arrived.push(message));
    const piece = new Uint8Array(size);
    for (let start = 0; start < bytes.length; start += size) {
      const part = bytes.slice(start, start + size);
      piece.set(part);
      reader.take(piece.subarray(0, part.length));
    }
    assertEquals(arrived, MESSAGES.map(([sent, arrived = sent]) => arrived));
  }
});

Deno.test("FrameReader refuses a long message by its length, and what is no text or no JSON", () => {
  const read = (...bytes: number[]) => () =>
    new FrameReader(9, () => {}).take(Uint8Array.from(bytes));
  assertThrows(read(0, 0, 0, 10), RangeError, "at most 9 bytes, not 10");
  assertThrows(read(255, 255, 255, 255), RangeError, "at most 9 bytes");
  assertThrows(read(0, 0, 0, 1, 255), TypeError);
  assertThrows(read(0, 0, 0, 1, 123), SyntaxError);
  assertThrows(read(0, 0, 0, 0), SyntaxError);
});
