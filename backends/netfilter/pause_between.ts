/**
 * Pauses for a long piece of work.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";

/** Longest time that passes between two turns of the event loop, milliseconds. */
const SLICE_MS = 5;

/**
 * A function to be called often while something long is done: it returns something to be waited for
 * only when other tasks have not had their turn for 5 ms.
 */
export function pauseBetween(
  clock: Pick<Clock, "now" | "yieldToEventLoop">,
): () => Promise<void> | undefined {
  let sliceStart = clock.now();
  return () => {
    if (clock.now() - sliceStart < SLICE_MS) return undefined;
    return clock.yieldToEventLoop().then(() => {
      sliceStart = clock.now();
    });
  };
}
