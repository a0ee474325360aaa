/**
 * Waiting for a condition with a deadline, in place of sleeping.
 *
 * @module
 */

import { DEADLINE_FACTOR } from "./deadline_factor.ts";

/**
 * Asks again and again until the answer is neither `undefined` nor `false`, and returns it. Throws,
 * saying what was awaited, when that takes longer than `deadlineMs` (more where all is slower).
 */
export async function eventually<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  { deadlineMs = 30_000 }: { readonly deadlineMs?: number } = {},
): Promise<T> {
  const start = performance.now();
  const limitMs = deadlineMs * DEADLINE_FACTOR;
  for (let pauseMs = 1;; pauseMs = Math.min(pauseMs * 2, 50)) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() - start > limitMs) {
      throw new Error(`Cannot go on: '${what}' did not come true within ${limitMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
