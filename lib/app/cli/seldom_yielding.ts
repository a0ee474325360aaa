import type { Clock } from "../../os/clock.ts";

/** Only signals wait for a turn of the event loop, and each turn costs a millisecond of idle time. */
const SLICE_MS = 50;

/** For a verb that does one thing and ends: skips turns of the event loop within 50 ms of the last one. */
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
