/**
 * Enforces NetworkPolicies by rules of iptables and sets of ipset, for hosts without nft. Both stay when
 * the process ends. The first sync of the next process reads them and writes the difference.
 *
 * @module
 */
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { removeChains } from "../../netfilter/foreign/remove_chains.ts";
import { destroySets } from "../../netfilter/ipset/destroy_sets.ts";
import { listSets } from "../../netfilter/ipset/ipset_runner.ts";
import { addLine, createLine } from "../../netfilter/ipset/ipset_text.ts";
import { CanarySchedule } from "../../netfilter/iptables/canary_schedule.ts";
import { IPTABLES_RULE_SETS } from "../../netfilter/iptables/iptables_rule_set.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { restoreLines } from "../../netfilter/iptables/restore_batch.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
import type { RuleBackendDependencies } from "../../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import type { PolicyDataPlane, PolicyDataPlaneOptions } from "../policy_data_plane.ts";
import { PolicyRulePlane } from "../policy_rule_plane.ts";
import { PolicyRules } from "../policy_rules.ts";
import { BASE_JUMPS, DENY_COUNTED, isPolicyChain } from "./base_chains.ts";
import { isPolicySet, policyChains, policySets } from "./layout.ts";
import { IptablesPolicyTarget } from "./target.ts";

/** Makes the data plane of one IP family. Runs nothing before it is started. */
export function createIptablesPolicyDataPlane(
  dependencies: RuleBackendDependencies,
  options: PolicyDataPlaneOptions,
): PolicyDataPlane {
  return new IptablesPolicyDataPlane(dependencies, options);
}

/** The results of `start()`. */
interface Machine {
  readonly summary: string;
  readonly runner: IptablesRunner;
  readonly writer: PolicyRules<IptablesPolicyTarget>;
}

class IptablesPolicyDataPlane extends PolicyRulePlane {
  readonly tool = "iptables";
  readonly #looks: CanarySchedule;
  #machine: Machine | undefined;

  constructor(
    dependencies: RuleBackendDependencies,
    { family, syncPeriodMs }: PolicyDataPlaneOptions,
  ) {
    super(dependencies, { family, schedule: new VerificationSchedule(dependencies.random) });
    this.#looks = new CanarySchedule(syncPeriodMs);
  }

  get pauseMs(): number {
    return this.#looks.pauseMs;
  }

  protected get writer(): PolicyRules<IptablesPolicyTarget> | undefined {
    return this.#machine?.writer;
  }

  protected get summary(): string {
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
  async look() {
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
    const { clock, commands } = this.dependencies;
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
    const writer = new PolicyRules(
      { clock },
      (quarantine) => new IptablesPolicyTarget({ clock, commands, runner }, family, quarantine),
    );
    const summary = `rules by ${programs.restore} ${programs.version}, sets by ipset`;
    this.#machine = { summary, runner, writer };
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

/** Renders all sets, sorted, then all chains. */
export function* renderPolicies(plan: PolicyPlan): Generator<string> {
  for (const { name, options, entries } of policySets(plan)) {
    yield `${createLine(name, options)}\n`;
    for (const entry of [...entries].sort()) yield `${addLine(name, entry)}\n`;
  }
  const chains = [...policyChains(plan)];
  const lines = restoreLines([{ table: "filter", chains, jumps: BASE_JUMPS }]);
  for (const line of lines) yield `${line}\n`;
}
