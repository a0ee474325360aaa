import type { Clock } from "../../lib/os/clock.ts";
import { runInSlices, urgent } from "../../lib/os/time_slice.ts";

export { atOnce } from "../../lib/net/steps.ts";

/** Runs `work` to its end and returns its result; other tasks get their turn every 5 ms. */
export function inSteps<T>(
  { clock }: { readonly clock: Pick<Clock, "now" | "nextTurn"> },
  work: Generator<void, T>,
): Promise<T> {
  return runInSlices(urgent(clock), work);
}
