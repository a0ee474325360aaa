/**
 * The nftables mode: one table of the kernel for each family, written by `nft`.
 *
 * `layout.ts` says what is wanted, `target.ts` what the engine needs to know to compare and write it, in
 * one transaction. The table stays when the process ends, and the next start takes it over.
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
import type { HostSettingRequest } from "../../lib/proxy/host_setting.ts";
import { featuresFound, type MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../lib/proxy/service_traffic.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { inspectPlan } from "../netfilter/inspect_plan.ts";
import {
  ROUTE_LOCALNET,
  RuleBackend,
  type RuleBackendDependencies,
  type RuleBackendOptions,
} from "../netfilter/rule_backend.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { fillLayout, WantedRules } from "../netfilter/wanted_rules.ts";
import { NftablesLayout } from "./layout.ts";
import { NftablesTarget, TableWriter } from "./target.ts";
import { servicesTable, TABLE } from "./containers.ts";
import { createTableWatch } from "./drift_watch.ts";
import { explainNftables } from "./explain.ts";
import { EXPRESSIONS } from "./expressions.ts";
import { appliedSlots, findAffinity, findMissingElements } from "./find_elements.ts";
import {
  ALL_FEATURES,
  type NftablesFeatures,
  type NftablesRenderOptions,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { probeNftablesMode, probeRenderFeatures } from "./probe.ts";
import { renderText, withCounters } from "./render.ts";
import { countedFor, startCounting, type TrafficCounters } from "./traffic_counters.ts";
import { Reconciler } from "../../lib/engine/reconciler.ts";
import { type NftDifference, nftDifferences, NftFigures } from "../netfilter/nft/nft_table.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { deletionText } from "../netfilter/nft/nft_objects.ts";
import { countingTable } from "./counting_table.ts";

interface NftablesBackendDependencies extends RuleBackendDependencies {
  /** Receives the traffic of each Service; absent = not counted. */
  readonly traffic?: FamilyTraffic;
}

type NftablesRules = WantedRules<NftablesLayout, NftablesRenderOptions, NftFigures>;

/** The machine as `start()` found it. */
interface Machine {
  readonly features: NftablesFeatures;
  readonly rules: NftablesRules;
  readonly writer: TableWriter;
  readonly drift: DriftWatch;
  /** Whether no table of this mode existed. */
  readonly isFresh: boolean;
  /** `undefined` = they were not requested. */
  readonly counters: TrafficCounters | undefined;
}

/** An nftables backend for one IP family. Runs nothing before it is started. */
export class NftablesBackend extends RuleBackend<Machine> implements Backend {
  readonly mode = "nftables";
  readonly #dependencies: NftablesBackendDependencies;
  readonly #options: RuleBackendOptions;

  constructor(dependencies: NftablesBackendDependencies, options: RuleBackendOptions) {
    super(options);
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[] {
    return servesLocalhost(this.#options, nodePorts) ? [ROUTE_LOCALNET] : [];
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeNftablesMode({
      commands: this.#dependencies.commands,
      kernelRelease: Deno.osRelease(),
      env: (name) => Deno.env.get(name),
    });
  }

  /** Leaves the table of an earlier run to the first sync, which knows the desired state. */
  protected async prepare(): Promise<Machine> {
    const { clock, commands } = this.#dependencies;
    const { family, syncPeriodMs: periodMs } = this.#options;
    const runner = new NftRunner({ commands }, servicesTable(family));
    // Says so at once where nft is missing or may not be used.
    const chains = await runner.chains();
    const features = await probeRenderFeatures({ commands }, { family });
    const refused = new RefusedItems();
    const writer = new TableWriter({ clock, runner, refused }, family);
    const rules: NftablesRules = new WantedRules({
      ...{ clock, refused, writer },
      createLayout: (shared, options) => new NftablesLayout(shared, options),
    });
    const turns = this.turns;
    const serviceCount = () => rules.layout?.serviceCount ?? 0;
    const { table } = writer.target;
    const edges = { ...this.#dependencies, rules, table, serviceCount, turns };
    const drift = createTableWatch(edges, { periodMs });
    const counters = await startCounting(this.#dependencies, { family, turns });
    return { features, rules, writer, drift, counters, isFresh: chains.size === 0 };
  }

  explain: Backend["explain"] = (plan, explanation, hit) => {
    const options = this.#renderOptions(plan);
    return explainNftables(plan, explanation, hit, { options, table: this.machine?.writer });
  };

  override findMissing: Backend["findMissing"] = (carriers) =>
    findMissingElements(
      new NftRunner(this.#dependencies, servicesTable(this.family)),
      carriers,
    );

  override findAffinity: Backend["findAffinity"] = (plan, packet) =>
    findAffinity(
      new NftRunner(this.#dependencies, servicesTable(this.family)),
      this.machine ? appliedSlots(plan, this.machine.writer) : new Map(),
      packet,
    );

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    const text = renderText(plan, this.#renderOptions(plan), keys);
    return this.#dependencies.traffic ? withCounters(text, plan, keys) : text;
  }

  override async refreshTraffic(): Promise<void> {
    await this.machine?.counters?.refresh();
  }

  facts(): MachineFacts | undefined {
    if (this.machine === undefined) return undefined;
    const { features } = this.machine;
    return { features: { ...features } };
  }

  compare: Backend["compare"] = async (plan, scope) => {
    const { engine, differencesIn } = await this.#comparison(plan, scope);
    return differencesIn(await engine.compare());
  };

  repair: Backend["repair"] = async (plan, scope) => {
    const { engine, figures, differencesIn } = await this.#comparison(plan, scope);
    const { found, left } = await engine.repair((change) => differencesIn([change]).length > 0);
    const { transactions, lines } = figures;
    const operations = { transactions, lines };
    return { found: differencesIn(found), left: differencesIn(left), operations };
  };

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const isStarted = this.machine !== undefined;
    const summary = isStarted
      ? `table ${EXPRESSIONS[this.family].table} ${TABLE} of nftables`
      : "not started";
    const { clock, traffic } = this.#dependencies;
    const { plan, quarantined } = this.machine?.rules ?? {};
    if (plan && keys?.length !== 0) await this.machine?.counters?.tryRefresh();
    const trafficOf = (service: ServicePlan) => countedFor(service, traffic);
    return { summary, ...await inspectPlan(plan, { clock, quarantined, keys, trafficOf }) };
  }

  ruleCounters(): Promise<RuleCounters> {
    const { failedWrites = 0, failedPartialWrites = 0 } = this.machine?.rules ?? {};
    const { failedCleanups = 0 } = this.machine?.writer ?? {};
    return Promise.resolve({ failedWrites, failedPartialWrites, failedCleanups });
  }

  protected remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    return removeOwnTable(this.#dependencies, { family: this.family, dryRun });
  }

  protected async write(
    { counters, rules }: Machine,
    plan: ProxyPlan,
    changes: PlanChanges,
  ): Promise<SyncReport> {
    const figures = new NftFigures();
    const options = this.#renderOptions(plan);
    const afterwards = async () => await counters?.sync(plan, changes);
    const report = await rules.sync(plan, { changes, options, figures, afterwards });
    return { ...report, operations: figures.operations, quarantined: rules.quarantined };
  }

  /** A second engine, for a plan of its own. It keeps the numbers of endpoints that are there. */
  async #comparison(plan: ProxyPlan, scope: ComparisonScope | undefined) {
    const { clock, commands } = this.#dependencies;
    const { facts, ...settings } = this.#options;
    const { family } = settings;
    const features = this.machine?.features ??
      (facts
        ? featuresFound(ALL_FEATURES, facts)
        : await probeRenderFeatures({ commands }, { family }));
    const options = renderOptionsOf(settings, plan.shared, { features });
    const runner = new NftRunner({ commands }, servicesTable(family));
    const target = new NftablesTarget({ clock, runner }, family);
    const layout = target.layout = new NftablesLayout(plan.shared, options);
    await fillLayout(layout, plan, { clock, quarantined: scope?.quarantined });
    const applied = [...this.machine?.writer.engine.applied ?? []];
    for (const [, item] of applied) {
      if ("slots" in item && item.slots) layout.setSlots(item.plan.key, item.slots);
    }
    const engine = new Reconciler({ clock }, target, applied);
    const isMeant = ({ key, kind }: NftDifference<ServicePortKey>) =>
      scope?.keys === undefined ||
      (key === undefined ? kind !== "extra" : scope.keys.has(key));
    const differencesIn = (changes: Parameters<typeof nftDifferences<ServicePortKey>>[0]) =>
      nftDifferences(changes, target.table.spec, (object) => target.ownerOfExtra(object))
        .filter(isMeant);
    return { engine, figures: target.table.figures, differencesIn };
  }

  #renderOptions({ shared }: ProxyPlan) {
    const { facts = { features: {} } } = this.#options;
    const features = this.machine?.features ?? featuresFound(ALL_FEATURES, facts);
    return renderOptionsOf(this.#options, shared, { features });
  }
}

interface OwnTableRemoval {
  readonly family: IpFamily;
  /** Only reports the removals. */
  readonly dryRun: boolean;
}

/** Takes the tables of a family away, which is all that this mode ever wrote. */
export async function removeOwnTable(
  edges: { readonly commands: CommandRunner },
  { family, dryRun }: OwnTableRemoval,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun });
  for (const table of [servicesTable(family), countingTable(family)]) {
    const name = `table ${table.family} ${table.name}`;
    try {
      if (!await new NftRunner(edges, table).isThere()) continue;
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      // Without the program, this mode never ran here.
      const isMissing = /ENOENT|not found/i.test(messageOf(error));
      if (!isMissing) run.unseen(name, error.message);
      break;
    }
    await run.do(name, {
      command: ["nft", "-f", "-"],
      input: () => [deletionText(table)],
      removes: [`${name} (nftables)`],
    });
  }
  return run.report();
}
