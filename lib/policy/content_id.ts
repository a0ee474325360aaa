/**
 * Short names for content: equal content has the same name, on every node and after every start.
 *
 * @module
 */

// A tenant chooses what is hashed. With a weaker hash, one could craft a policy whose rules take the
// place of another's. The crypto API is no part of the pure core.
const ROUND_CONSTANTS = fractionsOf((prime) => Math.cbrt(prime), 64);
const FIRST_STATE = fractionsOf(Math.sqrt, 8);

/** Characters of a name: 80 bits, as in names of chains. */
const LENGTH = 16;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** The first 80 bits of the SHA-256 of a text in base 32, in small letters. */
export function contentId(text: string): string {
  const words = sha256(new TextEncoder().encode(text));
  let id = "";
  for (let bit = 0; id.length < LENGTH; bit += 5) {
    const [index, offset] = [bit >>> 5, bit & 31];
    const word = words[index]!;
    const digit = offset <= 27
      ? word >>> 27 - offset
      : word << offset - 27 | words[index + 1]! >>> 59 - offset;
    id += BASE32[digit & 31];
  }
  return id;
}

/** Characters that are hashed without a pause. */
const LENGTH_PER_STEP = 16_384;

/** A name for a list of texts, as {@linkcode contentId}, in short steps. */
export function* contentIdInSteps(texts: Iterable<string>): Generator<void, string, void> {
  let [digests, part] = ["", ""];
  for (const text of texts) {
    part += `${text.length} ${text}`;
    if (part.length < LENGTH_PER_STEP) continue;
    digests += contentId(part);
    part = "";
    yield;
  }
  return contentId(`${digests} ${part}`);
}

/** The SHA-256 (FIPS 180-4) of bytes, as eight words of 32 bits. */
export function sha256(bytes: Uint8Array): Uint32Array {
  const padded = new Uint8Array(((bytes.length + 8 >> 6) + 1) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const state = FIRST_STATE.slice();
  const schedule = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let i = 0; i < 16; i++) schedule[i] = view.getUint32(block + i * 4);
    addBlock(state, schedule);
  }
  return state;
}

function addBlock(state: Uint32Array, w: Uint32Array): void {
  for (let i = 16; i < 64; i++) {
    const [early, late] = [w[i - 15]!, w[i - 2]!];
    const low = rotate(early, 7) ^ rotate(early, 18) ^ early >>> 3;
    const high = rotate(late, 17) ^ rotate(late, 19) ^ late >>> 10;
    w[i] = w[i - 16]! + low + w[i - 7]! + high;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let i = 0; i < 64; i++) {
    const sumE = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const one = h + sumE + (e & f ^ ~e & g) + ROUND_CONSTANTS[i]! + w[i]! | 0;
    const sumA = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const two = sumA + (a & b ^ a & c ^ b & c) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, d + one | 0, c, b, a, one + two | 0];
  }
  for (const [i, value] of [a, b, c, d, e, f, g, h].entries()) state[i] = state[i]! + value;
}

function rotate(word: number, bits: number): number {
  return word >>> bits | word << 32 - bits;
}

/** The first 32 bits of the fractions of the roots of the first primes. */
function fractionsOf(root: (prime: number) => number, count: number): Uint32Array {
  const found: number[] = [];
  for (let number = 2; found.length < count; number++) {
    let divisor = 2;
    while (divisor * divisor <= number && number % divisor !== 0) divisor++;
    if (divisor * divisor > number) found.push(root(number) % 1 * 2 ** 32);
  }
  return Uint32Array.from(found);
}
