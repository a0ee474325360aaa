/**
 * Enforces NetworkPolicies by rules of iptables and sets of ipset, for hosts without nft. Both stay when
 * the process ends. The first sync of the next process reads them and writes the difference.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { removeChains } from "../../netfilter/foreign/remove_chains.ts";
import { listSets } from "../../netfilter/ipset/ipset_runner.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { isSameRule } from "../../netfilter/iptables/rule_normal_form.ts";
import { watchCanaries } from "../../netfilter/iptables/watch_canaries.ts";
import type { RuleWatch } from "../../netfilter/rule_plane.ts";
import { PolicyPlane } from "../policy_plane.ts";
import { BASE_JUMPS, DENY_COUNTED, isPolicyChain } from "./base_chains.ts";
import { isPolicySet, renderPolicies } from "./layout.ts";
import { IptablesPolicyTarget } from "./target.ts";

/** The data plane of iptables. Runs nothing before it is started. */
export class IptablesPolicyPlane extends PolicyPlane<IptablesPolicyTarget> {
  readonly tool = "iptables";
  /** Absent before the tools were looked for. */
  #tools: { readonly summary: string; readonly runner: IptablesRunner } | undefined;

  get summary(): string {
    return this.#tools?.summary ?? "not started";
  }

  override async start(): Promise<void> {
    this.#tools = undefined;
    await super.start();
    this.edges.logger.info("Chose iptables for NetworkPolicy", { summary: this.summary });
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected async deniedIn(direction: Direction): Promise<number | undefined> {
    return await this.#tools?.runner.packetsOf("filter", DENY_COUNTED[direction]);
  }

  /** A flush removes the jumps, and a jump inserted above them may bypass the policies. */
  protected watch(
    _target: IptablesPolicyTarget,
    common: Pick<RuleWatch, "found" | "texts">,
  ): RuleWatch {
    const { runner } = this.#tools!;
    const look = watchCanaries(this.edges.clock, this.periodMs, async () => {
      for (const { from, rule } of BASE_JUMPS) {
        const [first = ""] = await runner.rulesOf("filter", from) ?? [];
        if (!isSameRule(rule, first)) return { chain: from, first };
      }
      return undefined;
    });
    return Object.assign(look, common);
  }

  protected async createTarget(): Promise<IptablesPolicyTarget> {
    const { runner } = this.#tools ??= await this.#findTools();
    return new IptablesPolicyTarget({ ...this.edges, runner }, this.refused);
  }

  async #findTools() {
    const { family, edges: { commands } } = this;
    const { programs, ...choice } = await chooseIptables({ commands }, { family });
    if (programs === undefined) {
      const reason = "problem" in choice ? choice.problem : "";
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by iptables: ${reason}`);
    }
    const sets = await listSets(commands);
    if (sets.state !== "seen") {
      throw new Error(`Cannot enforce NetworkPolicy for ${family} by ipset: ${sets.reason}`);
    }
    const summary = `rules by ${programs.restore} ${programs.version}, sets by ipset`;
    return { summary, runner: new IptablesRunner({ commands }, programs) };
  }

  /** Removes the rules first, because sets in use cannot be removed. */
  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.edges, options);
    await removeChains(this.edges, run, {
      family: this.family,
      whose: "kube-relay's",
      isLeftover: (table, chain) => table === "filter" && isPolicyChain(chain),
    });
    await run.removeSets((name) => isPolicySet(name, this.family));
    return run.report();
  }
}
