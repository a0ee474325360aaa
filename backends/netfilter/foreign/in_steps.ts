/**
 * Runs a generator that does a long piece of work, without holding up the event loop.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";

/** Longest time that passes between two turns of the event loop, milliseconds. */
const SLICE_MS = 5;

/** Runs `work` to its end and returns its result; other tasks get their turn every 5 ms. */
export async function inSteps<T>(
  { clock }: { readonly clock: Pick<Clock, "now" | "yieldToEventLoop"> },
  work: Generator<void, T>,
): Promise<T> {
  let sliceStart = clock.now();
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (clock.now() - sliceStart < SLICE_MS) continue;
    await clock.yieldToEventLoop();
    sliceStart = clock.now();
  }
}
