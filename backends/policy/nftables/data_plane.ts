/**
 * Enforces NetworkPolicies by one table of nftables in each family. The table stays when the process
 * ends. The first sync of the next process reads it and writes what differs.
 *
 * @module
 */
import { messageOf } from "../../../lib/log/message_of.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { NftError } from "../../netfilter/nft/nft_error.ts";
import { deletionText } from "../../netfilter/nft/nft_objects.ts";
import { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import type { RuleBackendDependencies } from "../../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import type { PolicyDataPlane, PolicyDataPlaneOptions } from "../policy_data_plane.ts";
import { PolicyRulePlane } from "../policy_rule_plane.ts";
import { denyChain } from "./base_chains.ts";
import { policyTable } from "./layout.ts";
import { PolicyRules } from "../policy_rules.ts";
import { NftPolicyTarget, renderPolicies } from "./target.ts";

/** Maximum interval of checks: a flush has to be repaired within seconds. */
const LONGEST_PAUSE_MS = 5_000;

/** Makes the data plane of one IP family. Runs nothing before it is started. */
export function createNftablesPolicyDataPlane(
  dependencies: RuleBackendDependencies,
  options: PolicyDataPlaneOptions,
): PolicyDataPlane {
  return new NftablesPolicyDataPlane(dependencies, options);
}

class NftablesPolicyDataPlane extends PolicyRulePlane {
  readonly tool = "nftables";
  readonly pauseMs: number;
  protected readonly writer: PolicyRules<NftPolicyTarget>;
  readonly #runner: NftRunner;

  constructor(
    dependencies: RuleBackendDependencies,
    { family, syncPeriodMs }: PolicyDataPlaneOptions,
  ) {
    const pauseMs = Math.min(syncPeriodMs, LONGEST_PAUSE_MS);
    const schedule = new VerificationSchedule(dependencies.random, { shortestMs: 2 * pauseMs });
    super(dependencies, { family, schedule });
    this.pauseMs = pauseMs;
    const runner = this.#runner = new NftRunner(dependencies, policyTable(family));
    const edges = { clock: dependencies.clock, runner };
    this.writer = new PolicyRules(
      dependencies,
      (quarantine) => new NftPolicyTarget(edges, family, quarantine),
    );
  }

  protected get summary(): string {
    const { family, name } = policyTable(this.family);
    return `table ${family} ${name} of nftables`;
  }

  /** Throws if nft is missing or not permitted. */
  protected async prepare(): Promise<void> {
    await this.#runner.chains();
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected deniedIn(direction: Direction): Promise<number | undefined> {
    return this.#runner.packetsOf(denyChain(direction));
  }

  async look() {
    const missing = await this.turns.run(() => this.writer.target.table.missingChains());
    return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
  }

  protected async remove(run: RemovalRun): Promise<void> {
    const table = policyTable(this.family);
    const name = `table ${table.family} ${table.name}`;
    try {
      if (!await this.#runner.isThere()) return;
      await run.do(name, {
        command: ["nft", "-f", "-"],
        input: () => [deletionText(table)],
        removes: [`${name} (nftables)`],
      });
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      // Without the program, kube-relay cannot have written a table.
      if (!/ENOENT|not found/i.test(messageOf(error))) run.unseen(name, error.message);
    }
  }
}
