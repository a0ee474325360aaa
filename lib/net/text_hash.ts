/**
 * Hashes that spread texts over numbers, for shares and not for secrets. All nodes, of any release, have
 * to find the same ones. Pure.
 *
 * @module
 */

/** Returns the FNV-1a hash of a text, mixed: texts that differ in their last digit are no neighbours. */
export function hashText(text: string): number {
  return mixHash(fnv1a(text));
}

/** Returns the plain FNV-1a hash of the UTF-16 units of a text, with a sign; its low bits are weak. */
export function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash;
}

/** The finalizer of MurmurHash3. */
export function mixHash(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
