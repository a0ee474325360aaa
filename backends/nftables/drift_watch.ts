/**
 * Notices when another program removes or changes the table, and repairs it.
 *
 * `nft flush ruleset` removes all chains, even if an older copy of the table is restored. The
 * watch looks for the chains often, which costs the same for any number of Services. A small table
 * is also read completely within seconds.
 *
 * @module
 */
import type { LogFields } from "../../lib/log/logger.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../netfilter/drift_watch.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import { NftFigures, type NftTable } from "../netfilter/nft/nft_table.ts";

interface TableWatchDependencies extends Omit<RuleBackendDependencies, "commands"> {
  readonly rules: {
    readonly isKnown: boolean;
    readonly isPending: boolean;
    verify(figures: NftFigures): Promise<void>;
  };
  readonly table: Pick<NftTable, "missingChains">;
  /** ServicePorts that have rules, or are to have them. */
  readonly serviceCount: () => number;
  /** Serializes the watch with other writers. */
  readonly turns: OneAtATime;
}

/** A flush must be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;

/** The assumed cost of a read before it is measured: a second at 10,000 Services. */
const READING_MS_PER_SERVICE = 0.1;

/**
 * Makes the watch of the table of one family. `periodMs`: longest time between two looks, where it is
 * under five seconds.
 */
export function createTableWatch(
  dependencies: TableWatchDependencies,
  { periodMs }: { readonly periodMs: number },
): DriftWatch {
  const { clock, logger, onDrift, random, turns } = dependencies;
  const pauseMs = Math.min(periodMs, LONGEST_PAUSE_MS);
  const schedule = new VerificationSchedule(random, { shortestMs: 2 * pauseMs });
  const subject = new TableWithChains({ ...dependencies, schedule }, pauseMs);
  return new DriftWatch({ clock, logger, onDrift, schedule, subject, turns }, {
    lost: "Another program removed or replaced chains of nftables; repairing",
    changed: "Another program removed or changed rules; repairing",
    failed: "Cannot check the table; trying again",
  });
}

class TableWithChains implements DriftSubject {
  readonly #dependencies: TableWatchDependencies & { readonly schedule: VerificationSchedule };
  readonly pauseMs: number;

  constructor(
    dependencies: TableWatchDependencies & { readonly schedule: VerificationSchedule },
    pauseMs: number,
  ) {
    this.#dependencies = dependencies;
    this.pauseMs = pauseMs;
  }

  get isKnown(): boolean {
    return this.#dependencies.rules.isKnown;
  }

  get isPending(): boolean {
    return this.#dependencies.rules.isPending;
  }

  async look(): Promise<LogFields | undefined> {
    const { clock, schedule, serviceCount, table, turns } = this.#dependencies;
    // Not before: how many Services there are is known with the first sync.
    schedule.expect(clock.now(), serviceCount() * READING_MS_PER_SERVICE);
    const missing = await turns.run(() => table.missingChains());
    return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
  }

  async verify(): Promise<DriftFound> {
    const { rules, table } = this.#dependencies;
    const figures = new NftFigures();
    const missing = await table.missingChains();
    await rules.verify(figures);
    const changed = figures.drift.filter(({ kind, before }) =>
      kind === "table" ? before !== undefined : kind === "chain" || kind === "set" || kind === "map"
    );
    const names = new Set([...missing, ...changed.map(({ name }) => name)]);
    const { elements } = figures;
    const [chain] = names;
    const fields = { chains: names.size, elements, ...(chain !== undefined && { chain }) };
    return { counts: { chain: names.size, rule: elements }, fields };
  }
}
