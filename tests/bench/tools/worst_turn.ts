/**
 * The longest turn of this process's event loop while something went on.
 *
 * @module
 */
import { cpuUsage } from "node:process";

/**
 * The longest turn between two timers that are due at once: milliseconds, at least what this thread
 * worked in it. Of each turn the CPU time of all threads is taken or the time that went by, whichever is
 * less: others that use the machine make only the latter longer, threads that collect garbage only the
 * former.
 */
export async function worstTurn(work: () => Promise<void>): Promise<number> {
  let worst = 0;
  let [cpuBefore, before] = [cpuMs(), performance.now()];
  const timer = setInterval(() => {
    const [cpu, now] = [cpuMs(), performance.now()];
    worst = Math.max(worst, Math.min(cpu - cpuBefore, now - before));
    [cpuBefore, before] = [cpu, now];
  }, 0);
  try {
    await work();
    return worst;
  } finally {
    clearInterval(timer);
  }
}

function cpuMs(): number {
  const { user, system } = cpuUsage();
  return (user + system) / 1000;
}
