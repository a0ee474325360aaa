/**
 * The nftables mode: one table of the kernel in each family, written by `nft`.
 *
 * What is wanted is in `layout.ts`, what the kernel holds in `table_writer.ts`; a sync is the
 * difference, in one transaction. The table stays when the process ends, and a start takes it over.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import type { Backend, RuleCounters, RuleCounting } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import {
  type BackendInspection,
  type ComparisonScope,
  type ProbeResult,
  renderOneByOne,
} from "../../lib/proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { HostSettingRequest } from "../../lib/proxy/host_setting.ts";
import { featuresFound, type MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type {
  ModeExplanation,
  PacketCarrier,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../lib/proxy/service_traffic.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { atOnce, inSteps } from "../netfilter/in_steps.ts";
import { inspectPlan } from "../netfilter/inspect_plan.ts";
import { OneAtATime } from "../../lib/os/one_at_a_time.ts";
import { ROUTE_LOCALNET } from "../netfilter/route_localnet.ts";
import type { RuleBackendDependencies, RuleBackendOptions } from "../netfilter/rule_backend.ts";
import { RuleSyncs } from "../netfilter/rule_syncs.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { servicesTable, TABLE } from "./containers.ts";
import { createTableWatch } from "./drift_watch.ts";
import { explainNftables } from "./explain.ts";
import { EXPRESSIONS } from "./expressions.ts";
import { findAffinity } from "./find_affinity.ts";
import { findMissingElements } from "./find_missing.ts";
import { compareKernel, repairKernel } from "./kernel_comparison.ts";
import { renderOptionsOf, servesLocalhost } from "./live_options.ts";
import { removeOwnTable } from "./own_table.ts";
import { probeNftablesMode, probeRenderFeatures } from "./probe.ts";
import { ALL_FEATURES, type NftablesFeatures } from "./render_options.ts";
import { renderText, withCounters } from "./render.ts";
import { countedFor, startCounting } from "./start_counting.ts";
import type { TrafficCounters } from "./traffic_counters.ts";
import { WantedTable } from "./wanted_table.ts";
import { WriteFigures } from "./write_figures.ts";

/** The edges of the nftables backend. */
interface NftablesBackendDependencies extends RuleBackendDependencies {
  /** Where what goes through each Service is counted; left out = it is not. */
  readonly traffic?: FamilyTraffic;
}

/** Makes an nftables backend for one IP family. Runs nothing before it is started. */
export function createNftablesBackend(
  dependencies: NftablesBackendDependencies,
  options: RuleBackendOptions,
): Backend {
  return new NftablesBackend(dependencies, options);
}

/** What `start()` found out of the machine. */
interface Machine {
  readonly features: NftablesFeatures;
  readonly table: WantedTable;
  readonly drift: DriftWatch;
  /** Whether there was no table of ours. */
  readonly isFresh: boolean;
  /** `undefined` = nobody asked for them. */
  readonly counters: TrafficCounters | undefined;
}

class NftablesBackend implements Backend {
  readonly mode = "nftables";
  readonly usesConntrack = true;
  readonly family: IpFamily;
  readonly #dependencies: NftablesBackendDependencies;
  readonly #options: RuleBackendOptions;
  readonly #turns = new OneAtATime();
  readonly #syncs = new RuleSyncs();
  #machine: Machine | undefined;

  constructor(dependencies: NftablesBackendDependencies, options: RuleBackendOptions) {
    this.family = options.family;
    this.#dependencies = dependencies;
    this.#options = options;
  }

  get counting(): RuleCounting {
    return this;
  }

  get takesPartialPlans(): boolean {
    return this.#machine?.isFresh === true;
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

  /** The table of an earlier run is read with the first sync, when it is known what is wanted of it. */
  async start(): Promise<void> {
    const { clock, commands } = this.#dependencies;
    const { family, syncPeriodMs: periodMs } = this.#options;
    const runner = new NftRunner({ commands }, servicesTable(family));
    // Says so at once where nft is missing or may not be used.
    const chains = await runner.chains();
    const features = await probeRenderFeatures({ commands }, { family });
    const table = new WantedTable({ clock, runner });
    const turns = this.#turns;
    const drift = createTableWatch({ ...this.#dependencies, table, turns }, { periodMs });
    const counters = await startCounting(this.#dependencies, { family, turns });
    this.#machine = { features, table, drift, counters, isFresh: chains.size === 0 };
    drift.start();
  }

  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    return this.#turns.run(() => this.#sync(plan, changes));
  }

  explain(plan: ProxyPlan, explanation: PacketExplanation): ModeExplanation {
    const options = this.#renderOptions(plan);
    return explainNftables(plan, explanation, { options, table: this.#machine?.table });
  }

  findMissing(carriers: readonly PacketCarrier[]): Promise<readonly DataPlaneDifference[]> {
    const { commands } = this.#dependencies;
    return findMissingElements(new NftRunner({ commands }, servicesTable(this.family)), carriers);
  }

  findAffinity: Backend["findAffinity"] = (plan, packet) =>
    findAffinity(
      new NftRunner(this.#dependencies, servicesTable(this.family)),
      this.#machine?.table.slots(plan) ?? new Map(),
      packet,
    );

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    const text = renderText(plan, this.#renderOptions(plan), keys);
    return this.#dependencies.traffic ? withCounters(text, plan, keys) : text;
  }

  renderEach(plan: ProxyPlan, keys: ReadonlySet<ServicePortKey>) {
    return renderOneByOne({ render: (key) => this.render(plan, new Set([key])) }, keys);
  }

  async refreshTraffic(): Promise<void> {
    await this.#machine?.counters?.refresh();
  }

  facts(): MachineFacts | undefined {
    if (this.#machine === undefined) return undefined;
    const { features, table } = this.#machine;
    return { features: { ...features }, layout: atOnce(table.orders()) };
  }

  compare: Backend["compare"] = async (plan, scope) =>
    (await compareKernel(...await this.#comparison(plan, scope))).differences;

  repair: Backend["repair"] = async (plan, scope) =>
    await repairKernel(...await this.#comparison(plan, scope));

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const isStarted = this.#machine !== undefined;
    const summary = isStarted
      ? `table ${EXPRESSIONS[this.family].table} ${TABLE} of nftables`
      : "not started";
    const { clock, traffic } = this.#dependencies;
    const { plan } = this.#syncs;
    if (plan && keys?.length !== 0) await this.#machine?.counters?.tryRefresh();
    const { quarantined } = this.#machine?.table ?? {};
    const trafficOf = (service: ServicePlan) => countedFor(service, traffic);
    return { summary, ...await inspectPlan(plan, { clock, quarantined, keys, trafficOf }) };
  }

  ruleCounters(): Promise<RuleCounters> {
    const { failedWrites = 0, failedCleanups = 0 } = this.#machine?.table ?? {};
    const { failedPartialWrites } = this.#syncs;
    return Promise.resolve({ failedWrites, failedPartialWrites, failedCleanups });
  }

  recheck(): void {
    this.#machine?.drift.recheck();
  }

  ownsAddress(_address: IpAddress): boolean {
    return false;
  }

  cleanup(): Promise<CleanupReport> {
    return removeOwnTable(this.#dependencies, { family: this.family, dryRun: false });
  }

  previewCleanup(): Promise<CleanupReport> {
    return removeOwnTable(this.#dependencies, { family: this.family, dryRun: true });
  }

  /** Open connections are the kernel's: they go on whether this process does or not. */
  async drain(): Promise<void> {
    await this.#machine?.drift.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#machine?.drift.stop();
  }

  async #sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    if (this.#machine === undefined) {
      throw new Error("Cannot sync the table of nftables: start() has not succeeded");
    }
    const { counters, table } = this.#machine;
    const figures = new WriteFigures();
    const report = await this.#syncs.run(table, {
      plan,
      changes,
      take: () => table.take(plan, { changes, options: this.#renderOptions(plan) }),
      write: async () => {
        await table.write(figures);
        await counters?.sync(plan, changes);
      },
    });
    return { ...report, operations: figures.operations, quarantined: table.quarantined };
  }

  async #comparison(plan: ProxyPlan, scope: ComparisonScope | undefined) {
    const { clock, commands } = this.#dependencies;
    const { facts, ...settings } = this.#options;
    const { family } = settings;
    const table = this.#machine?.table;
    const features = this.#machine?.features ??
      (facts
        ? featuresFound(ALL_FEATURES, facts)
        : await probeRenderFeatures({ commands }, { family }));
    const options = renderOptionsOf(settings, plan.shared, { features });
    const runner = new NftRunner({ commands }, servicesTable(family));
    const layout = facts?.layout;
    const orders = table
      ? () => inSteps({ clock }, table.orders())
      : layout && (() => Promise.resolve(layout));
    return [{ clock, runner }, { plan, options, orders, scope }] as const;
  }

  #renderOptions({ shared }: ProxyPlan) {
    const { facts = { features: {} } } = this.#options;
    const features = this.#machine?.features ?? featuresFound(ALL_FEATURES, facts);
    return renderOptionsOf(this.#options, shared, { features });
  }
}
