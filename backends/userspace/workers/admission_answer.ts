/**
 * The answer of the main thread to a worker that waits, in two cells of shared memory.
 *
 * @module
 */
import type { ReachedLimit } from "../connection_limits.ts";

/** The first cell while there is no answer. */
export const NO_ANSWER = 0;

const LIMITS = [
  "max-connections",
  "max-connections-per-client",
  "max-new-connections-per-second",
] as const satisfies readonly ReachedLimit["limit"][];
const ADMITTED = 1;

/** Memory for an answer. */
export function createAnswer(): SharedArrayBuffer {
  return new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
}

/** Answers, and wakes the worker. */
export function encodeAdmission(cells: Int32Array, reached: ReachedLimit | undefined): void {
  if (reached) Atomics.store(cells, 1, reached.bound);
  const answer = reached ? ADMITTED + 1 + LIMITS.indexOf(reached.limit) : ADMITTED;
  Atomics.store(cells, 0, answer);
  Atomics.notify(cells, 0);
}

/** Returns the limit that forbids the connection; `undefined` = it is admitted. */
export function decodeAdmission(cells: Int32Array): ReachedLimit | undefined {
  const limit = LIMITS[Atomics.load(cells, 0) - ADMITTED - 1];
  return limit && { limit, bound: Atomics.load(cells, 1) };
}
