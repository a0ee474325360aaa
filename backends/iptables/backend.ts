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
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type {
  BackendInspection,
  ComparisonScope,
  ProbeResult,
} from "../../lib/proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
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
import { fillLayout, WantedRules } from "../netfilter/wanted_rules.ts";
import { IptablesLayout } from "./layout.ts";
import { type IptablesRules, RuleWriter, WriteFigures } from "./target.ts";
import { TREES } from "./base_chains.ts";
import { ruleDifferences } from "./differences.ts";
import { createRuleWatch } from "./drift_watch.ts";
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
import { foundShape } from "./tree_shape.ts";

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
    const refused = new RefusedItems();
    const recreateCounters = () => this.#recreateCounters();
    const writer = new RuleWriter({ clock, runner, refused, recreateCounters });
    const rules: IptablesRules = new WantedRules({
      ...{ clock, refused, writer },
      createLayout: (shared, options) => new IptablesLayout(shared, options),
    });
    const found = await writer.target.save();
    this.#reportUnreadable(writer.target.unreadable);
    const drift = createRuleWatch({ ...this.#dependencies, runner, rules, turns: this.turns }, {
      periodMs: this.#options.syncPeriodMs,
      tables: features.mangle ? ["mangle", "filter", "nat"] : ["filter", "nat"],
    });
    const summary = `rules by ${restore} ${version}`;
    const isFresh = writer.target.unreadable.length === 0 &&
      !found.nat.chains.has(TREES.services.root);
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

  compare: Backend["compare"] = async (plan, scope) => {
    const { engine, differencesIn } = await this.#comparison(plan, scope);
    return differencesIn(await engine.compare());
  };

  repair: Backend["repair"] = async (plan, scope) => {
    const { engine, figures, differencesIn } = await this.#comparison(plan, scope);
    const { found, left } = await engine.repair((change) => differencesIn([change]).length > 0);
    const operations = found.length === 0 ? {} : figures.operations;
    return { found: differencesIn(found), left: differencesIn(left), operations };
  };

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
    this.#reportUnreadable(writer.target.unreadable);
    const { nat, filter } = writer.target.totals;
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

  /** A second engine, for a plan of its own. */
  async #comparison(plan: ProxyPlan, scope: ComparisonScope | undefined) {
    const { clock } = this.#dependencies;
    const { runner, options, shape } = await this.#compared(plan);
    const recreateCounters = () => this.#recreateCounters();
    const { engine, target } = new RuleWriter({ clock, runner, recreateCounters });
    const layout = new IptablesLayout(plan.shared, options, {
      shape: shape ?? foundShape(await target.save()),
    });
    await fillLayout(layout, plan, { clock, quarantined: scope?.quarantined });
    layout.dropEmpty();
    target.layout = layout;
    const isMeant = ({ key }: DataPlaneDifference) =>
      key === undefined || scope?.keys === undefined || scope.keys.has(key);
    const differencesIn = (changes: Parameters<typeof ruleDifferences>[0]) =>
      ruleDifferences(changes, layout).filter(isMeant);
    return { engine, figures: target.figures, differencesIn };
  }

  /**
   * The rules to compare with; without a shape, the chains of the trees are to be those that are
   * found.
   */
  async #compared(plan: ProxyPlan) {
    const { commands } = this.#dependencies;
    if (this.machine !== undefined) {
      const { runner, rules } = this.machine;
      return { runner, options: this.#renderOptions(plan), shape: shapeOf(rules) };
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
    return { runner, options, shape: facts?.layout };
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
