/**
 * CPU time in place of wall-clock time: other programs on the machine do not count.
 *
 * @module
 */
import { cpuUsage } from "node:process";

/** Runs per side of a comparison: the cache and other users of the processor disturb single ones. */
const MOST_RUNS = 8;

/** Returns the CPU time that this process spends in `work`, in milliseconds. */
export function cpuMs(work: () => void): number {
  const before = cpuUsage();
  work();
  const { user, system } = cpuUsage(before);
  return (user + system) / 1000;
}

/**
 * Returns how many times the CPU time of `baseline` `work` takes, as the least of some pairs that run
 * one after the other; stops at the first pair that is not above `enough`.
 */
export function leastCpuRatio(work: () => void, baseline: () => void, enough: number): number {
  let least = Infinity;
  for (let run = 0; run < MOST_RUNS && least > enough; run++) {
    least = Math.min(least, cpuMs(work) / cpuMs(baseline));
  }
  return least;
}
