/** Waiting for a condition with a deadline, in place of sleeping. */
import { DEADLINE_FACTOR } from "./deadline_factor.ts";

/** Longer than a busy machine delays anything: it only ends a wait that would never end. */
const DEADLINE_MS = 60_000;
/** Longest pause after a question that took less. */
const MOST_PAUSE_MS = 50;
/** Longest pause after a question that took longer. */
const MOST_REST_MS = 500;

/**
 * Asks again and again until the answer is neither `undefined` nor `false`, and returns it. Throws an
 * Error that names the condition when that takes longer than `deadlineMs`, which is multiplied by
 * {@linkcode DEADLINE_FACTOR}.
 */
export async function eventually<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  { deadlineMs = DEADLINE_MS }: { readonly deadlineMs?: number } = {},
): Promise<T> {
  const start = performance.now();
  const limitMs = deadlineMs * DEADLINE_FACTOR;
  for (let pauseMs = 1;; pauseMs = Math.min(pauseMs * 2, MOST_PAUSE_MS)) {
    const askedAt = performance.now();
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() - start > limitMs) {
      throw new Error(`Cannot continue: '${what}' did not come true within ${limitMs} ms`);
    }
    // Checks use at most half of a processor, because the awaited work may need it.
    const restMs = Math.min(performance.now() - askedAt, MOST_REST_MS);
    await new Promise((resolve) => setTimeout(resolve, Math.max(pauseMs, restMs)));
  }
}
