/**
 * Notices when other programs remove rules of kube-relay, and restores them.
 *
 * A flush of a table removes its canary. The watch checks for it often, in every table, because
 * other programs may flush a single table (upstream checks mangle only:
 * kubernetes/kubernetes#129128).
 *
 * @module
 */
import type { LogFields } from "../../lib/log/logger.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../netfilter/drift_watch.ts";
import { CanarySchedule } from "../netfilter/iptables/canary_schedule.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import { CANARY } from "./base_chains.ts";
import { type IptablesRules, WriteFigures } from "./target.ts";

interface RuleWatchDependencies extends Omit<RuleBackendDependencies, "commands"> {
  readonly runner: Pick<IptablesRunner, "hasRules">;
  readonly rules: Pick<IptablesRules, "isKnown" | "isPending" | "verify">;
  /** Serializes the watch with other writers. */
  readonly turns: OneAtATime;
}

/** The interval of the watch and the tables that it checks. */
interface RuleWatchOptions {
  /** Longest time between two looks for the canaries, milliseconds. */
  readonly periodMs: number;
  readonly tables: readonly IptablesTable[];
}

/** Makes the watch of the rules of one family. */
export function createRuleWatch(
  dependencies: RuleWatchDependencies,
  options: RuleWatchOptions,
): DriftWatch {
  const { clock, logger, onDrift, random, turns } = dependencies;
  const schedule = new VerificationSchedule(random);
  schedule.expect(clock.now(), 0);
  const subject = new RulesWithCanaries(dependencies, options);
  return new DriftWatch({ clock, logger, onDrift, schedule, subject, turns }, {
    lost: "Another program flushed a table of iptables; repairing",
    changed: "Another program removed or changed rules; repairing",
    failed: "Cannot check the rules; trying again",
  });
}

class RulesWithCanaries implements DriftSubject {
  readonly #dependencies: RuleWatchDependencies;
  readonly #tables: readonly IptablesTable[];
  readonly #canaries: CanarySchedule;

  constructor(dependencies: RuleWatchDependencies, { periodMs, tables }: RuleWatchOptions) {
    this.#dependencies = dependencies;
    this.#tables = tables;
    this.#canaries = new CanarySchedule(periodMs);
  }

  get isKnown(): boolean {
    return this.#dependencies.rules.isKnown;
  }

  get isPending(): boolean {
    return this.#dependencies.rules.isPending;
  }

  get pauseMs(): number {
    return this.#canaries.pauseMs;
  }

  async look(): Promise<LogFields | undefined> {
    const { clock } = this.#dependencies;
    const startedAt = clock.now();
    const table = await this.#flushedTable();
    this.#canaries.looked(clock.now() - startedAt);
    if (table === undefined) return undefined;
    this.#canaries.lost();
    return { table };
  }

  async verify(): Promise<DriftFound> {
    const figures = new WriteFigures();
    await this.#dependencies.rules.verify(figures);
    const { chains, removedChains, jumps } = figures;
    return { counts: { chain: chains + removedChains, rule: jumps }, fields: { chains, jumps } };
  }

  /** The first table without its canary. One that can't be looked at now is taken to be whole. */
  async #flushedTable(): Promise<IptablesTable | undefined> {
    const { logger, runner } = this.#dependencies;
    for (const table of this.#tables) {
      try {
        if (!await runner.hasRules(table, CANARY)) return table;
      } catch (error) {
        if (!(error instanceof IptablesError)) throw error;
        logger.verbose(2, "Cannot look for the canary", { table, error });
      }
    }
    return undefined;
  }
}
