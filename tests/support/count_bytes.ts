/**
 * Counts the bytes that are copied and decoded: the work of a parser, however busy the machine is.
 *
 * @module
 */

const TYPED_ARRAY = Object.getPrototypeOf(Uint8Array.prototype);

/** Counts the bytes that are copied between arrays and decoded to text, until it is stopped. */
export function countBytes(): { stop(): number } {
  const { slice, set } = TYPED_ARRAY;
  const { decode } = TextDecoder.prototype;
  let bytes = 0;
  TYPED_ARRAY.slice = function (this: Uint8Array, ...range: [number?, number?]) {
    const copy = slice.apply(this, range);
    bytes += copy.length;
    return copy;
  };
  TYPED_ARRAY.set = function (this: Uint8Array, source: ArrayLike<number>, offset?: number) {
    bytes += source.length;
    return set.call(this, source, offset);
  };
  TextDecoder.prototype.decode = function (input, options) {
    bytes += input?.byteLength ?? 0;
    return decode.call(this, input, options);
  };
  return {
    stop() {
      Object.assign(TYPED_ARRAY, { slice, set });
      TextDecoder.prototype.decode = decode;
      return bytes;
    },
  };
}
