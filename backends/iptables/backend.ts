/**
 * The iptables mode: rules of the kernel, written by `iptables-restore`.
 *
 * `layout.ts` says what is wanted, `target.ts` what the engine needs to know to compare and write it.
 * Rules stay when the process ends, and the next start takes them over.
 *
 * @module
 */
import type { Backend, RuleCounters } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import type { Change } from "../../lib/engine/reconciler.ts";
import {
  featuresFound,
  type MachineFacts,
  type ProbeResult,
} from "../../lib/proxy/service_mode.ts";
import type { HostSettingRequest } from "../../lib/proxy/data_plane.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { readCounters, recreateCounters } from "../netfilter/packet_counters.ts";
import {
  ROUTE_LOCALNET,
  RuleBackend,
  type RuleBackendOptions,
  type RuleComparison,
} from "../netfilter/rule_backend.ts";
import type { FoundMachine, RulePlaneEdges, RuleWatch } from "../netfilter/rule_plane.ts";
import { IptablesLayout } from "./layout.ts";
import { IptablesTarget, ruleDifferences } from "./target.ts";
import { CANARY, TREES } from "./base_chains.ts";
import { findFacts, probeIptablesMode } from "./probe.ts";
import { ExplainedLayout, explainIptables } from "./explain.ts";
import {
  ALL_FEATURES,
  allowsRanges,
  hasServiceComments,
  type IptablesFeatures,
  type IptablesRenderOptions,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";
import { removeOwnChains } from "./own_chains.ts";
import { renderText } from "./render.ts";
import { CanarySchedule } from "../netfilter/iptables/canary_schedule.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";

/** Settings of the iptables backend. */
interface IptablesBackendOptions extends RuleBackendOptions {
  readonly localhostNodePorts: boolean;
}

/** The machine as it was found. */
interface Machine {
  readonly runner: IptablesRunner;
  readonly features: IptablesFeatures;
  readonly beLiberal: boolean;
  /** The settings that depend on all Services; those of the plan at hand if left out. */
  readonly serviceComments?: boolean | undefined;
  /** Stays false once it was: a Service that comes and goes must not rewrite all rules each time. */
  readonly masqueradesRanges?: boolean | undefined;
}

/** An iptables backend for one IP family. Runs nothing before it is started. */
export class IptablesBackend
  extends RuleBackend<IptablesLayout, IptablesRenderOptions, IptablesTarget>
  implements Backend {
  readonly mode = "iptables";
  readonly #dependencies: RulePlaneEdges;
  readonly #options: IptablesBackendOptions;
  readonly #explained = new ExplainedLayout();
  protected summary = "not started";
  /** As `start()` found it. */
  #machine: Machine | undefined;
  #reportedUnreadable = "";

  constructor(dependencies: RulePlaneEdges, options: IptablesBackendOptions) {
    super(dependencies, options);
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[] {
    return servesLocalhost(this.#options, nodePorts) ? [ROUTE_LOCALNET] : [];
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIptablesMode(this.#dependencies);
  }

  protected async prepare(): Promise<FoundMachine<IptablesTarget>> {
    const { commands, logger } = this.#dependencies;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot start mode iptables for ${this.family}: ${choice.problem}`);
    }
    const { features, beLiberal } = await findFacts({ commands }, choice, { isForRun: true });
    const { programs: { restore, variant, version }, reason } = choice;
    logger.info("Chose the variant of iptables", { variant, version, reason });
    const runner = new IptablesRunner({ commands }, choice.programs);
    const target = this.#targetOf(runner);
    const found = await target.readEarly();
    this.#reportUnreadable(target.unreadable);
    const watch = this.#watchOf(
      runner,
      target,
      features.mangle ? ["mangle", "filter", "nat"] : ["filter", "nat"],
    );
    this.summary = `rules by ${restore} ${version}`;
    this.#machine = {
      ...{ runner, features, beLiberal, serviceComments: true, masqueradesRanges: true },
    };
    const isFresh = target.unreadable.length === 0 && !found.nat.chains.has(TREES.services.root);
    return { target, watch, isFresh };
  }

  protected optionsOf(plan: ProxyPlan, changes?: PlanChanges): IptablesRenderOptions {
    const machine = this.#machine;
    if (machine && changes) {
      const { serviceComments, masqueradesRanges } = machine;
      const ranged = changes.shared ? undefined : changes.upserted;
      this.#machine = {
        ...machine,
        serviceComments: hasServiceComments(plan.services.size, serviceComments),
        masqueradesRanges: masqueradesRanges && allowsRanges(plan, ranged),
      };
    }
    return this.#optionsOn(this.#machine ?? this.#machineOf(this.#options.facts), plan);
  }

  protected createLayout(shared: SharedPlan, options: IptablesRenderOptions): IptablesLayout {
    return new IptablesLayout(shared, options);
  }

  explain: Backend["explain"] = (plan, explanation, hit) => {
    const applied = plan === this.plan ? this.layout : undefined;
    const options = this.optionsOf(plan);
    const layout = this.#explained.of(plan, { applied, options });
    return explainIptables(explanation, hit, layout);
  };

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.optionsOf(plan), keys);
  }

  facts(): MachineFacts | undefined {
    if (this.#machine === undefined) return undefined;
    const { features, serviceComments = true, masqueradesRanges = true, beLiberal } = this.#machine;
    return {
      features: { ...features, serviceComments, masqueradesRanges },
      beLiberal,
    };
  }

  override async ruleCounters(): Promise<RuleCounters> {
    const packets = this.#machine?.features.nfacct ? await readCounters(this.#dependencies) : {};
    return { ...await super.ruleCounters(), ...packets };
  }

  protected remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    return removeOwnChains(this.#dependencies, { family: this.family, dryRun });
  }

  protected override synced(): Promise<void> {
    this.#reportUnreadable(this.target!.unreadable);
    return Promise.resolve();
  }

  protected async comparison(
    plan: ProxyPlan,
    fill: (layout: IptablesLayout) => Promise<void>,
  ): Promise<RuleComparison> {
    const machine = this.#machine ?? await this.#found();
    const target = this.#targetOf(machine.runner);
    const layout = new IptablesLayout(plan.shared, this.#optionsOn(machine, plan));
    await fill(layout);
    target.layout = layout;
    const differencesIn = (changes: readonly Change<ServicePortKey>[]) =>
      ruleDifferences(changes, layout);
    return { target, differencesIn };
  }

  /**
   * A flush of a table removes its canary. The watch checks for it often, in every one of these
   * tables, because other programs may flush a single table (upstream checks mangle only:
   * kubernetes/kubernetes#129128).
   */
  #watchOf(
    runner: IptablesRunner,
    target: IptablesTarget,
    tables: readonly IptablesTable[],
  ): RuleWatch {
    const { clock, logger } = this.#dependencies;
    const canaries = new CanarySchedule(this.#options.syncPeriodMs);
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
        const counts = { chain: chains + removedChains, rule: jumps };
        return { counts, fields: { chains, jumps } };
      },
    };
  }

  #targetOf(runner: IptablesRunner): IptablesTarget {
    const { clock } = this.#dependencies;
    const recreateCounters = () => this.#recreateCounters();
    return new IptablesTarget({ clock, runner, recreateCounters });
  }

  /** The machine of a process that serves nothing. */
  async #found(): Promise<Machine> {
    const { commands } = this.#dependencies;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot compare rules of ${this.family}: ${choice.problem}`);
    }
    const { facts } = this.#options;
    const runner = new IptablesRunner({ commands }, choice.programs);
    return { runner, ...facts ? this.#machineOf(facts) : await findFacts({ commands }, choice) };
  }

  /** The machine of these facts. */
  #machineOf(facts: MachineFacts = { features: {} }): Omit<Machine, "runner"> {
    const { serviceComments, masqueradesRanges } = facts.features;
    return {
      features: featuresFound(ALL_FEATURES, facts),
      beLiberal: facts.beLiberal ?? false,
      serviceComments,
      masqueradesRanges,
    };
  }

  #optionsOn(machine: Omit<Machine, "runner">, plan: ProxyPlan): IptablesRenderOptions {
    return renderOptionsOf(this.#options, plan.shared, {
      ...machine,
      serviceComments: machine.serviceComments ?? hasServiceComments(plan.services.size),
      masqueradesRanges: machine.masqueradesRanges ?? allowsRanges(plan),
    });
  }

  /** Creates the counters again. If that fails, the next sync writes rules without them. */
  async #recreateCounters(): Promise<boolean> {
    const exist = await recreateCounters(this.#dependencies);
    const machine = this.#machine;
    if (machine && !exist) {
      this.#machine = { ...machine, features: { ...machine.features, nfacct: false } };
    }
    return exist;
  }

  /** Logs each set of tables once. */
  #reportUnreadable(tables: readonly IptablesTable[]): void {
    const names = tables.join(" ");
    if (names !== "" && names !== this.#reportedUnreadable) {
      this.#dependencies.logger.warn(
        "Tables of iptables contain rules that only nft can show; changes by other programs are not noticed there",
        { tables, cure: "see 'nft list ruleset', and move those rules to a table of their own" },
      );
    }
    this.#reportedUnreadable = names;
  }
}
