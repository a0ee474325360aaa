/**
 * The watch for a flush: how often to look for what it takes along.
 *
 * @module
 */
import type { LogFields } from "../../../lib/log/logger.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { RuleWatch } from "../rule_plane.ts";

/** A flush must be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 10_000;
/** A program that flushes one table often continues with the next one. */
const ALERT_PAUSE_MS = 1_000;
const ALERT_LOOKS = 5;
/**
 * Checks take at most one part in this many of the time: iptables-legacy copies the whole table for
 * a check.
 */
const IDLE_PARTS = 100;

/**
 * Plans looks. `periodMs`: longest time between two of them, where it is under ten seconds. `findLost`
 * returns log fields if something is missing.
 */
export function watchCanaries(
  clock: Pick<Clock, "now">,
  periodMs: number,
  findLost: () => Promise<LogFields | undefined>,
): Pick<RuleWatch, "look" | "pauseMs"> {
  let lookMs = 0;
  let alertLooks = 0;
  return {
    get pauseMs() {
      const usual = Math.max(Math.min(periodMs, LONGEST_PAUSE_MS), lookMs * IDLE_PARTS);
      return alertLooks > 0 ? Math.min(usual, ALERT_PAUSE_MS) : usual;
    },
    async look() {
      const startedAt = clock.now();
      const lost = await findLost();
      lookMs = clock.now() - startedAt;
      if (alertLooks > 0) alertLooks--;
      if (lost) alertLooks = ALERT_LOOKS;
      return lost;
    },
  };
}
