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
import {
  type BackendInspection,
  type ComparisonScope,
  featuresFound,
  type MachineFacts,
  type ProbeResult,
} from "../../lib/proxy/service_mode.ts";
import type { HostSettingRequest } from "../../lib/proxy/data_plane.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic, TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import {
  ROUTE_LOCALNET,
  RuleBackend,
  type RuleBackendOptions,
  type RuleComparison,
} from "../netfilter/rule_backend.ts";
import type { FoundMachine, RulePlaneEdges, RuleWatch } from "../netfilter/rule_plane.ts";
import { NftablesLayout } from "./layout.ts";
import { asService, NftablesTarget } from "./target.ts";
import { EXPRESSIONS, servicesTable, TABLE } from "./containers.ts";
import { explainNftables, findAffinity } from "./explain.ts";
import {
  ALL_FEATURES,
  type NftablesFeatures,
  type NftablesRenderOptions,
  renderOptionsOf,
} from "./render_options.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { probeNftablesMode, probeRenderFeatures } from "./probe.ts";
import { renderText, withCounters } from "./render.ts";
import { countingTable, TrafficCounters } from "./traffic_counters.ts";
import type { Change } from "../../lib/engine/reconciler.ts";
import { nftDifferences } from "../netfilter/nft/nft_table.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";

interface NftablesBackendDependencies extends RulePlaneEdges {
  /** Receives the traffic of each Service; absent = not counted. */
  readonly traffic?: FamilyTraffic;
}

/** An nftables backend for one IP family. Runs nothing before it is started. */
export class NftablesBackend
  extends RuleBackend<NftablesLayout, NftablesRenderOptions, NftablesTarget>
  implements Backend {
  readonly mode = "nftables";
  readonly #dependencies: NftablesBackendDependencies;
  readonly #options: RuleBackendOptions;
  readonly #runner: NftRunner;
  #features: NftablesFeatures | undefined;
  /** `undefined` = they were not requested. */
  #counters: TrafficCounters | undefined;

  constructor(dependencies: NftablesBackendDependencies, options: RuleBackendOptions) {
    super(dependencies, options);
    this.#dependencies = dependencies;
    this.#options = options;
    this.#runner = new NftRunner(dependencies, servicesTable(options.family));
  }

  /** No other program writes tables of these names. */
  override distrust(): void {}

  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[] {
    const { localhostNodePorts } = renderOptionsOf(this.#options, nodePorts, ALL_FEATURES);
    return localhostNodePorts ? [ROUTE_LOCALNET] : [];
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeNftablesMode({
      commands: this.#dependencies.commands,
      kernelRelease: Deno.osRelease(),
      env: (name) => Deno.env.get(name),
    });
  }

  protected async prepare(): Promise<FoundMachine<NftablesTarget>> {
    const { clock, commands } = this.#dependencies;
    const { family, syncPeriodMs } = this.#options;
    // Says so at once where nft is missing or may not be used.
    const chains = await this.#runner.chains();
    this.#features = await probeRenderFeatures({ commands }, { family });
    const target = new NftablesTarget({ clock, runner: this.#runner }, family);
    const watch: RuleWatch = {
      ...target.table.watch(syncPeriodMs),
      texts: {
        lost: "Another program removed or replaced chains of nftables; repairing",
        changed: "Another program removed or changed rules; repairing",
        failed: "Cannot check the table; trying again",
      },
      // A second at 10,000 Services.
      readingMs: 0.1,
      found(changes) {
        const { chains, elements } = target.table.figures;
        const containers = changes.filter(({ kind }) =>
          ["table", "chain", "set", "map"].includes(kind)
        );
        const names = new Set(containers.map(({ name }) => name));
        const [chain] = names;
        const isWhole = changes.some(({ kind }) => kind === "table");
        const count = isWhole ? chains : names.size;
        const fields = { chains: count, elements, ...(chain !== undefined && { chain }) };
        return { counts: { chain: count, rule: elements }, fields };
      },
    };
    const { traffic, ...dependencies } = this.#dependencies;
    if (traffic) this.#counters = new TrafficCounters(dependencies, family, traffic, this.turns);
    else {
      // That of an earlier run would slow every packet.
      const counters = new NftRunner(dependencies, countingTable(family));
      if (await counters.isThere()) await counters.remove();
    }
    return { target, watch, isFresh: chains.size === 0 };
  }

  protected get summary(): string {
    if (this.target === undefined) return "not started";
    return `table ${EXPRESSIONS[this.family].table} ${TABLE} of nftables`;
  }

  protected optionsOf({ shared }: ProxyPlan): NftablesRenderOptions {
    const { facts = { features: {} } } = this.#options;
    const features = this.#features ?? featuresFound(ALL_FEATURES, facts);
    return renderOptionsOf(this.#options, shared.nodePortRanges, features);
  }

  protected createLayout(shared: SharedPlan, options: NftablesRenderOptions): NftablesLayout {
    return new NftablesLayout(shared, options);
  }

  explain: Backend["explain"] = (plan, explanation, hit) =>
    explainNftables(
      plan,
      explanation,
      hit,
      this.optionsOf(plan),
      hit && asService(this.engine?.applied.get(hit.service.key)),
    );

  override findAffinity: Backend["findAffinity"] = ({ key }, packet) =>
    findAffinity(
      this.#runner,
      asService(this.engine?.applied.get(key))?.slots ?? new Map(),
      packet,
    );

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    const text = renderText(plan, this.optionsOf(plan), keys);
    return this.#dependencies.traffic ? withCounters(text, plan, keys) : text;
  }

  override async refreshTraffic(): Promise<void> {
    await this.#counters?.refresh();
  }

  facts(): MachineFacts | undefined {
    return this.#features && { features: { ...this.#features } };
  }

  override async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    if (this.plan && keys?.length !== 0) await this.#counters?.tryRefresh();
    return await super.inspect(keys);
  }

  protected override trafficOf({ name }: ServicePlan): TrafficFigures | undefined {
    const counted = this.#dependencies.traffic?.get(name);
    if (counted === undefined) return undefined;
    const { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients } = counted;
    return { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients };
  }

  protected override get failedWrites(): number {
    return super.failedWrites + this.#failedCleanups;
  }

  override async ruleCounters(): Promise<RuleCounters> {
    return { ...await super.ruleCounters(), failedCleanups: this.#failedCleanups };
  }

  /** The failed writes that only removed chains. */
  get #failedCleanups(): number {
    return this.target?.table.failedRemovals ?? 0;
  }

  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.#dependencies, options);
    const { family } = this;
    if (await run.removeTable(servicesTable(family))) await run.removeTable(countingTable(family));
    return run.report();
  }

  protected override async synced(plan: ProxyPlan, changes: PlanChanges): Promise<void> {
    await this.#counters?.sync(plan, changes);
  }

  /** Endpoints keep the numbers that are there. */
  protected async comparison(
    plan: ProxyPlan,
    fill: (layout: NftablesLayout) => Promise<void>,
    scope: ComparisonScope,
  ): Promise<RuleComparison> {
    const { clock, commands } = this.#dependencies;
    const { facts, ...settings } = this.#options;
    const { family } = settings;
    const features = this.#features ??
      (facts
        ? featuresFound(ALL_FEATURES, facts)
        : await probeRenderFeatures({ commands }, { family }));
    const options = renderOptionsOf(settings, plan.shared.nodePortRanges, features);
    const target = new NftablesTarget({ clock, runner: this.#runner }, family);
    const layout = target.layout = new NftablesLayout(plan.shared, options);
    await fill(layout);
    const applied = [...this.engine?.applied ?? []];
    for (const [, item] of applied) {
      const service = asService(item);
      if (service?.slots) layout.slots.adopt(service.plan.key, service.slots);
    }
    const differencesIn = (changes: readonly Change<ServicePortKey>[]) =>
      nftDifferences(changes, target.table.spec, target.elementOwners(scope.keys));
    return { target, applied, differencesIn };
  }
}
