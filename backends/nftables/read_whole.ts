/**
 * Listings that are read again where the kernel gave a torn one.
 *
 * The kernel keeps elements in hash tables. After a commit it may resize one in the background, which
 * also changes the order of its elements. A listing of some hundred elements takes several messages,
 * and each of them skips as many elements as were sent before. So a resize between two messages
 * repeats some elements and leaves as many out. Neither the generation of the rules nor nft notices
 * (seen with Linux 6.18 and nft 1.0.6 on a busy machine).
 *
 * @module
 */

/** What was read. */
export interface Listed<T> {
  readonly reading: T;
  /** Whether an element is in it twice: then another one is missing. */
  readonly isTorn: boolean;
}

/** A resize takes milliseconds. */
const MAX_READINGS = 5;

/** Reads until an element is listed once at most, a few times at most. */
export async function readWhole<T>(read: () => Promise<Listed<T>>): Promise<T> {
  for (let readings = 1;; readings++) {
    const { reading, isTorn } = await read();
    if (!isTorn || readings === MAX_READINGS) return reading;
  }
}
