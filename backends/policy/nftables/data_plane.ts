/**
 * Enforces NetworkPolicies by one table of nftables in each family. The table stays when the process
 * ends. The first sync of the next process reads it and writes what differs.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import type { FoundMachine, RulePlaneEdges, RuleWatch } from "../../netfilter/rule_plane.ts";
import { PolicyPlane, type PolicyPlaneOptions } from "../policy_plane.ts";
import { denyChain } from "./base_chains.ts";
import { policyTable, renderPolicies } from "./layout.ts";
import { NftPolicyTarget } from "./target.ts";

/** Maximum interval of checks: a flush has to be repaired within seconds. */
const LONGEST_PAUSE_MS = 5_000;

/** The data plane of nftables. Runs nothing before it is started. */
export class NftablesPolicyPlane extends PolicyPlane<NftPolicyTarget> {
  readonly tool = "nftables";
  readonly summary: string;
  readonly #pauseMs: number;
  readonly #runner: NftRunner;

  constructor(edges: RulePlaneEdges, options: PolicyPlaneOptions) {
    super(edges, options);
    const spec = policyTable(options.family);
    this.summary = `table ${spec.family} ${spec.name} of nftables`;
    this.#pauseMs = Math.min(options.syncPeriodMs, LONGEST_PAUSE_MS);
    this.#runner = new NftRunner(edges, spec);
  }

  /** Throws if nft is missing or not permitted. */
  protected override async prepare(): Promise<FoundMachine<NftPolicyTarget>> {
    await this.#runner.chains();
    return await super.prepare();
  }

  protected createTarget(): NftPolicyTarget {
    return new NftPolicyTarget(this.edges.clock, this.#runner, this.family, this.refused);
  }

  protected watch(common: Pick<RuleWatch, "found" | "texts">): RuleWatch {
    const pauseMs = this.#pauseMs;
    const look = async () => {
      const missing = await this.target?.table.missingChains() ?? [];
      return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
    };
    return { ...common, pauseMs, shortestMs: 2 * pauseMs, look };
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected deniedIn(direction: Direction): Promise<number | undefined> {
    return this.#runner.packetsOf(denyChain(direction));
  }

  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.edges, options);
    await run.removeTable(policyTable(this.family));
    return run.report();
  }
}
