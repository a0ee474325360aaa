import type { Clock } from "../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";

export { atOnce } from "../../lib/net/steps.ts";

/** Runs `work` to its end and returns its result; other tasks get their turn every 5 ms. */
export async function inSteps<T>(
  { clock }: { readonly clock: Pick<Clock, "now" | "nextTurn"> },
  work: Generator<void, T>,
): Promise<T> {
  const slice = new TimeSlice(urgent(clock));
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    const turn = slice.pause();
    // Usually there is nothing to wait for, and awaiting would still cost a turn.
    if (turn) await turn;
  }
}
