/**
 * Random numbers that a seed repeats.
 *
 * @module
 */

/** The seed of `KUBE_RELAY_SEED`, or a new one. Belongs into the message of a failure. */
export function chooseSeed(): number {
  return Number(Deno.env.get("KUBE_RELAY_SEED") ?? Math.floor(Math.random() * 2 ** 31));
}

/** Numbers from 0 to just below 1 (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
