/**
 * How late timers fire: the time for which the event loop did not turn.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";

/** Time between two looks. A stall is seen if it falls onto one, so long ones always are. */
const PERIOD_MS = 20;

/** Measures until the signal is aborted; `onDelay` is told of each new largest delay in milliseconds. */
export async function monitorEventLoop(
  { clock }: { readonly clock: Clock },
  { signal, onDelay }: {
    readonly signal: AbortSignal;
    readonly onDelay: (largestMs: number) => void;
  },
): Promise<void> {
  let largest = 0;
  let before = clock.now();
  while (!signal.aborted) {
    await clock.sleep(PERIOD_MS, signal).catch(() => {});
    const now = clock.now();
    const delay = now - before - PERIOD_MS;
    before = now;
    if (delay <= largest || signal.aborted) continue;
    largest = delay;
    onDelay(delay);
  }
}
