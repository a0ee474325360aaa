/**
 * How the rules are watched for changes by other programs.
 *
 * A flush of a table removes its canary. The watch checks for it often, in every table, because
 * other programs may flush a single table (upstream checks mangle only:
 * kubernetes/kubernetes#129128).
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { CanarySchedule } from "../netfilter/iptables/canary_schedule.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import type { RuleWatch } from "../netfilter/rule_plane.ts";
import { CANARY } from "./base_chains.ts";
import type { IptablesTarget } from "./target.ts";

interface RuleWatchDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runner: Pick<IptablesRunner, "hasRules">;
  readonly target: Pick<IptablesTarget, "figures">;
}

/** The watch of these tables. `periodMs`: longest time between two looks for the canaries. */
export function ruleWatch(
  { clock, logger, runner, target }: RuleWatchDependencies,
  tables: readonly IptablesTable[],
  { periodMs }: { readonly periodMs: number },
): RuleWatch {
  const canaries = new CanarySchedule(periodMs);
  /** The first table without its canary. One that can't be looked at now is taken to be whole. */
  const flushedTable = async () => {
    for (const table of tables) {
      try {
        if (!await runner.hasRules(table, CANARY)) return table;
      } catch (error) {
        if (!(error instanceof IptablesError)) throw error;
        logger.verbose(2, "Cannot look for the canary", { table, error });
      }
    }
    return undefined;
  };
  return {
    texts: {
      lost: "Another program flushed a table of iptables; repairing",
      changed: "Another program removed or changed rules; repairing",
      failed: "Cannot check the rules; trying again",
    },
    get pauseMs() {
      return canaries.pauseMs;
    },
    async look() {
      const startedAt = clock.now();
      const table = await flushedTable();
      canaries.looked(clock.now() - startedAt);
      if (table === undefined) return undefined;
      canaries.lost();
      return { table };
    },
    found() {
      const { chains, removedChains, jumps } = target.figures;
      return { counts: { chain: chains + removedChains, rule: jumps }, fields: { chains, jumps } };
    },
  };
}
