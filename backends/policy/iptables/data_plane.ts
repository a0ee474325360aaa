/**
 * Enforces NetworkPolicies by rules of iptables and sets of ipset, for hosts without nft. Both stay when
 * the process ends. The first sync of the next process reads them and writes the difference.
 *
 * @module
 */
import type { LogFields } from "../../../lib/log/logger.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { removeChains } from "../../netfilter/foreign/remove_chains.ts";
import { destroySets } from "../../netfilter/ipset/destroy_sets.ts";
import { listSets } from "../../netfilter/ipset/ipset_runner.ts";
import { CanarySchedule } from "../../netfilter/iptables/canary_schedule.ts";
import { IPTABLES_RULE_SETS } from "../../netfilter/iptables/iptables_rule_set.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
import type { RuleBackendDependencies } from "../../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import { PolicyPlane, type PolicyPlaneOptions } from "../policy_plane.ts";
import { BASE_JUMPS, DENY_COUNTED, isPolicyChain } from "./base_chains.ts";
import { isPolicySet, renderPolicies } from "./layout.ts";
import { IptablesPolicyTarget } from "./target.ts";

/** The data plane of iptables. Runs nothing before it is started. */
export class IptablesPolicyPlane extends PolicyPlane<IptablesPolicyTarget> {
  readonly tool = "iptables";
  readonly #looks: CanarySchedule;
  #machine: { readonly summary: string; readonly runner: IptablesRunner } | undefined;

  constructor(dependencies: RuleBackendDependencies, { family, syncPeriodMs }: PolicyPlaneOptions) {
    super(dependencies, family, new VerificationSchedule(dependencies.random));
    this.#looks = new CanarySchedule(syncPeriodMs);
  }

  get pauseMs(): number {
    return this.#looks.pauseMs;
  }

  get summary(): string {
    return this.#machine?.summary ?? "not started";
  }

  override async start(): Promise<void> {
    await super.start();
    const { logger } = this.dependencies;
    logger.info("Chose iptables for NetworkPolicy", { summary: this.summary });
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected async deniedIn(direction: Direction): Promise<number | undefined> {
    return await this.#machine?.runner.packetsOf("filter", DENY_COUNTED[direction]);
  }

  /** For the watch: a flush removes the jumps, and a jump inserted above them may bypass the policies. */
  async look(): Promise<LogFields | undefined> {
    const { clock } = this.dependencies;
    const startedAt = clock.now();
    for (const { from, rule } of BASE_JUMPS) {
      const [first = ""] = await this.#machine?.runner.rulesOf("filter", from) ?? [];
      if (isSameRule(rule, first)) continue;
      this.#looks.lost();
      return { chain: from, first };
    }
    this.#looks.looked(clock.now() - startedAt);
    return undefined;
  }

  protected async prepare(): Promise<void> {
    const { commands } = this.dependencies;
    const { family } = this;
    const { programs, ...choice } = await chooseIptables({ commands }, { family });
    if (programs === undefined) {
      const reason = "problem" in choice ? choice.problem : "";
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by iptables: ${reason}`);
    }
    const sets = await listSets(commands);
    if (sets.state !== "seen") {
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by ipset: ${sets.reason}`);
    }
    const runner = new IptablesRunner({ commands }, programs);
    const summary = `rules by ${programs.restore} ${programs.version}, sets by ipset`;
    this.#machine = { summary, runner };
  }

  protected async createTarget(): Promise<IptablesPolicyTarget> {
    if (this.#machine === undefined) await this.prepare();
    const { runner } = this.#machine!;
    return new IptablesPolicyTarget({ ...this.dependencies, runner }, this.family, this.refused);
  }

  /** Removes the rules first, because sets in use cannot be removed. */
  protected async remove(run: RemovalRun): Promise<void> {
    await removeChains(this.dependencies, run, {
      worlds: IPTABLES_RULE_SETS.filter(({ family }) => family === this.family),
      whose: "kube-relay's",
      isLeftover: (table, chain) => table === "filter" && isPolicyChain(chain),
    });
    const sets = await listSets(this.dependencies.commands);
    if (sets.state === "refused") run.unseen("sets of ipset", sets.reason);
    if (sets.state === "seen") {
      await destroySets(run, sets.value.filter((name) => isPolicySet(name, this.family)));
    }
  }
}
