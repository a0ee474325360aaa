import type { Clock } from "../../os/clock.ts";

/**
 * Longest time between two turns of the event loop, in milliseconds. Nobody waits for one but a signal;
 * each costs a millisecond at least, in which nothing is done.
 */
const SLICE_MS = 50;

/** The same clock, by which most calls for a turn of the event loop have come too early. */
export function seldomYielding(clock: Clock): Clock {
  let sliceStart = clock.now();
  return {
    now: () => clock.now(),
    wallNow: () => clock.wallNow(),
    setTimer: (ms, callback) => clock.setTimer(ms, callback),
    sleep: (ms, signal) => clock.sleep(ms, signal),
    async yieldToEventLoop() {
      if (clock.now() - sliceStart < SLICE_MS) return;
      await clock.yieldToEventLoop();
      sliceStart = clock.now();
    },
  };
}
