/**
 * The iptables mode: rules of the kernel, written by `iptables-restore`.
 *
 * A sync writes the difference between `layout.ts` (desired) and `rule_writer.ts` (applied). Rules
 * stay when the process ends, and the next start takes them over.
 *
 * @module
 */
import type { Backend, RuleCounters } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type {
  BackendInspection,
  ComparisonScope,
  ProbeResult,
} from "../../lib/proxy/service_mode.ts";
import type { HostSettingRequest } from "../../lib/proxy/host_setting.ts";
import { featuresFound, type MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { inspectPlan } from "../netfilter/inspect_plan.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { readCounters, recreateCounters } from "../netfilter/packet_counters.ts";
import {
  ROUTE_LOCALNET,
  RuleBackend,
  type RuleBackendDependencies,
  type RuleBackendOptions,
} from "../netfilter/rule_backend.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { WantedRules } from "../netfilter/wanted_rules.ts";
import { IptablesLayout } from "./layout.ts";
import { RuleWriter } from "./rule_writer.ts";
import { type IptablesRules, ServiceRuleWriter } from "./service_rule_writer.ts";
import { TREES } from "./base_chains.ts";
import { createRuleWatch } from "./drift_watch.ts";
import { compareKernel, repairKernel } from "./compare_kernel.ts";
import { findFacts, probeIptablesMode } from "./probe.ts";
import { ExplainedLayout, explainIptables, findMissingRules } from "./explain.ts";
import {
  ALL_FEATURES,
  allowsRanges,
  hasServiceComments,
  type IptablesFeatures,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";
import { removeOwnChains } from "./own_chains.ts";
import { renderEach, renderText } from "./render.ts";
import { WriteFigures } from "./write_figures.ts";

/** Settings of the iptables backend. */
interface IptablesBackendOptions extends RuleBackendOptions {
  readonly localhostNodePorts: boolean;
}

/** The machine as `start()` found it. */
interface Machine {
  readonly summary: string;
  features: IptablesFeatures;
  readonly beLiberal: boolean;
  readonly runner: IptablesRunner;
  readonly rules: IptablesRules;
  readonly writer: RuleWriter;
  readonly drift: DriftWatch;
  serviceComments: boolean;
  /** Stays false once it was: a Service that comes and goes must not rewrite all rules each time. */
  masqueradesRanges: boolean;
  /** Whether no rules for Services existed. */
  readonly isFresh: boolean;
}

/** An iptables backend for one IP family. Runs nothing before it is started. */
export class IptablesBackend extends RuleBackend<Machine> implements Backend {
  readonly mode = "iptables";
  readonly #dependencies: RuleBackendDependencies;
  readonly #options: IptablesBackendOptions;
  readonly #explained = new ExplainedLayout();
  #reportedUnreadable = "";

  constructor(dependencies: RuleBackendDependencies, options: IptablesBackendOptions) {
    super(options);
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[] {
    return servesLocalhost(this.#options, nodePorts) ? [ROUTE_LOCALNET] : [];
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIptablesMode(this.#dependencies);
  }

  protected async prepare(): Promise<Machine> {
    const { clock, commands, logger } = this.#dependencies;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot start mode iptables for ${this.family}: ${choice.problem}`);
    }
    const { features, beLiberal } = await findFacts({ commands }, choice, { isForRun: true });
    const { programs: { restore, variant, version }, reason } = choice;
    logger.info("Chose the variant of iptables", { variant, version, reason });
    const runner = new IptablesRunner({ commands }, choice.programs);
    const writer = new RuleWriter({ clock, runner });
    const rules = this.#rulesOf(writer);
    await writer.read(new WriteFigures());
    this.#reportUnreadable(writer.unreadable);
    const drift = createRuleWatch({ ...this.#dependencies, runner, rules, turns: this.turns }, {
      periodMs: this.#options.syncPeriodMs,
      tables: features.mangle ? ["mangle", "filter", "nat"] : ["filter", "nat"],
    });
    const summary = `rules by ${restore} ${version}`;
    const isFresh = writer.unreadable.length === 0 &&
      !writer.found({ table: "nat", name: TREES.services.root });
    return {
      ...{ summary, features, beLiberal, runner, rules, writer, drift, isFresh },
      serviceComments: true,
      masqueradesRanges: true,
    };
  }

  explain: Backend["explain"] = (plan, explanation, hit) => {
    const applied = plan === this.machine?.rules.plan ? this.machine.rules.layout : undefined;
    const options = this.#renderOptions(plan);
    const layout = this.#explained.of(plan, { applied, options, facts: this.#options.facts });
    return explainIptables(explanation, hit, layout);
  };

  override findMissing: Backend["findMissing"] = (carriers) =>
    findMissingRules(this.machine?.runner, carriers);

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.#renderOptions(plan), keys);
  }

  override renderEach: Backend["renderEach"] = (plan, keys) =>
    renderEach(plan, this.#renderOptions(plan), keys);

  facts(): MachineFacts | undefined {
    if (this.machine === undefined) return undefined;
    const { features, serviceComments, masqueradesRanges, beLiberal, rules } = this.machine;
    return {
      features: { ...features, serviceComments, masqueradesRanges },
      beLiberal,
      layout: shapeOf(rules),
    };
  }

  compare: Backend["compare"] = async (plan, scope) =>
    await compareKernel(...await this.#comparison(plan, scope));

  repair: Backend["repair"] = async (plan, scope) =>
    await repairKernel(...await this.#comparison(plan, scope));

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const summary = this.machine?.summary ?? "not started";
    const { clock } = this.#dependencies;
    const { plan, quarantined } = this.machine?.rules ?? {};
    return { summary, ...await inspectPlan(plan, { clock, quarantined, keys }) };
  }

  async ruleCounters(): Promise<RuleCounters> {
    const { rules, features } = this.machine ?? {};
    const { failedWrites = 0, failedPartialWrites = 0 } = rules ?? {};
    const packets = features?.nfacct ? await readCounters(this.#dependencies) : {};
    return { failedWrites, failedPartialWrites, failedCleanups: 0, ...packets };
  }

  protected remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    return removeOwnChains(this.#dependencies, { family: this.family, dryRun });
  }

  protected async write(
    machine: Machine,
    plan: ProxyPlan,
    changes: PlanChanges,
  ): Promise<SyncReport> {
    const { rules, writer } = machine;
    const figures = new WriteFigures();
    machine.serviceComments = hasServiceComments(plan.services.size, machine.serviceComments);
    machine.masqueradesRanges &&= changes.shared
      ? allowsRanges(plan)
      : allowsRanges(plan, changes.upserted);
    const options = this.#renderOptions(plan);
    const report = await rules.sync(plan, { changes, options, figures });
    this.#reportUnreadable(writer.unreadable);
    const { nat, filter } = writer.totals;
    return {
      ...report,
      operations: figures.operations,
      quarantined: rules.quarantined,
      rules: {
        nat: { total: nat, last: figures.rules.nat },
        filter: { total: filter, last: figures.rules.filter },
      },
    };
  }

  #rulesOf(writer: RuleWriter): IptablesRules {
    const { clock } = this.#dependencies;
    const refused = new RefusedItems();
    const recreateCounters = () => this.#recreateCounters();
    return new WantedRules({
      clock,
      refused,
      writer: new ServiceRuleWriter({ clock, writer, refused, recreateCounters }),
      createLayout: (shared, options) => new IptablesLayout(shared, options),
    });
  }

  /** Creates the counters again. If that fails, the next sync writes rules without them. */
  async #recreateCounters(): Promise<boolean> {
    const exist = await recreateCounters(this.#dependencies);
    const machine = this.machine;
    if (machine && !exist) machine.features = { ...machine.features, nfacct: false };
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

  async #comparison(plan: ProxyPlan, scope: ComparisonScope | undefined) {
    const { clock, commands } = this.#dependencies;
    const edges = { clock, recreateCounters: () => this.#recreateCounters() };
    if (this.machine !== undefined) {
      const { runner, rules } = this.machine;
      const options = this.#renderOptions(plan);
      return [{ ...edges, runner }, { plan, options, shape: shapeOf(rules), scope }] as const;
    }
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot compare rules of ${this.family}: ${choice.problem}`);
    }
    const { facts, ...settings } = this.#options;
    const { features, beLiberal = false } = facts
      ? { ...facts, features: featuresFound(ALL_FEATURES, facts) }
      : await findFacts({ commands }, choice);
    const options = renderOptionsOf(settings, plan.shared, {
      features,
      beLiberal,
      ...dependingOnPlan(facts, plan),
    });
    const runner = new IptablesRunner({ commands }, choice.programs);
    return [{ ...edges, runner }, { plan, options, shape: facts?.layout, scope }] as const;
  }

  #renderOptions(plan: ProxyPlan) {
    const { facts = { features: {} } } = this.#options;
    const { beLiberal = false, ...machine } = this.machine ?? {
      ...facts,
      features: featuresFound(ALL_FEATURES, facts),
      ...dependingOnPlan(facts, plan),
    };
    return renderOptionsOf(this.#options, plan.shared, { ...machine, beLiberal });
  }
}

/** The settings that depend on all Services, on the machine of these facts or on a new one. */
function dependingOnPlan(facts: MachineFacts | undefined, plan: ProxyPlan) {
  const { serviceComments, masqueradesRanges } = facts?.features ?? {};
  return {
    serviceComments: serviceComments ?? hasServiceComments(plan.services.size),
    masqueradesRanges: masqueradesRanges ?? allowsRanges(plan),
  };
}

/** The chains of the trees; see {@linkcode IptablesLayout.shape}. */
function shapeOf({ layout }: IptablesRules): readonly string[] {
  return layout?.shape ?? [];
}
