/**
 * Enforces NetworkPolicies by one table of nftables in each family. The table stays when the process
 * ends. The first sync of the next process reads it and writes what differs.
 *
 * @module
 */
import type { LogFields } from "../../../lib/log/logger.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { removeOwnTable } from "../../netfilter/foreign/nft_tables.ts";
import type { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import type { RuleBackendDependencies } from "../../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import { PolicyPlane, type PolicyPlaneOptions } from "../policy_plane.ts";
import { denyChain } from "./base_chains.ts";
import { policyTable, renderPolicies } from "./layout.ts";
import { NftPolicyTarget } from "./target.ts";

/** Maximum interval of checks: a flush has to be repaired within seconds. */
const LONGEST_PAUSE_MS = 5_000;

/** The data plane of nftables. Runs nothing before it is started. */
export class NftablesPolicyPlane extends PolicyPlane<NftPolicyTarget> {
  readonly tool = "nftables";
  readonly pauseMs: number;
  readonly #runner: NftRunner;

  constructor(dependencies: RuleBackendDependencies, { family, syncPeriodMs }: PolicyPlaneOptions) {
    const pauseMs = Math.min(syncPeriodMs, LONGEST_PAUSE_MS);
    super(
      dependencies,
      family,
      new VerificationSchedule(dependencies.random, { shortestMs: 2 * pauseMs }),
    );
    this.pauseMs = pauseMs;
    this.#runner = new NftRunner(dependencies, policyTable(family));
  }

  get summary(): string {
    const { family, name } = policyTable(this.family);
    return `table ${family} ${name} of nftables`;
  }

  /** Throws if nft is missing or not permitted. */
  protected async prepare(): Promise<void> {
    await this.#runner.chains();
  }

  protected createTarget(): NftPolicyTarget {
    return new NftPolicyTarget(this.dependencies.clock, this.#runner, this.family, this.refused);
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected deniedIn(direction: Direction): Promise<number | undefined> {
    return this.#runner.packetsOf(denyChain(direction));
  }

  async look(): Promise<LogFields | undefined> {
    const missing = await this.turns.run(async () =>
      await this.target?.table.missingChains() ?? []
    );
    return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
  }

  protected async remove(run: RemovalRun): Promise<void> {
    await removeOwnTable(this.dependencies, run, policyTable(this.family));
  }
}
