/**
 * The ipvs mode: virtual servers of the kernel, with sets and rules around them.
 *
 * A sync writes the difference between `layout.ts` (desired) and `ipvs_writer.ts` (applied).
 * The objects remain when the process ends. The next start adopts them, and also those of kube-proxy.
 *
 * @module
 */
import { type IpAddress, ipFamilyOf, isLoopback } from "../../lib/net/ip_address.ts";
import { messageOf } from "../../lib/log/message_of.ts";
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
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { SyncFailure } from "../../lib/controller/sync_failure.ts";
import { isAtLeast, parseVersion } from "../netfilter/probe/tool_version.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import type { IpvsBackendDependencies, IpvsBackendOptions } from "./backend_options.ts";
import { giveUpAddresses } from "./give_up_addresses.ts";
import { IpvsRunner, setConnectionTimeouts } from "./ipvs_runner.ts";
import { DEVICE } from "./diff.ts";
import { explainIpvs } from "./explain.ts";
import { ipvsHostSettings } from "./host_settings.ts";
import { inspectServices } from "./inspect.ts";
import { KernelComparison } from "./kernel_comparison.ts";
import { RuleBackend } from "../netfilter/rule_backend.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { createServerWatch } from "./drift_watch.ts";
import { IpvsWriter } from "./ipvs_writer.ts";
import { removeOwnObjects, removeStaleChains } from "./own_objects.ts";
import { probeIpvsMode } from "./probe.ts";
import { defaultIpvsOptions, type IpvsFeatures, type IpvsRenderOptions } from "./render_options.ts";
import { renderText } from "./render.ts";
import { recordedNodePorts } from "./server_record_file.ts";
import { ServerRecordWriter } from "./server_record_writer.ts";
import { TakenServers } from "./taken_servers.ts";
import { WriteFigures } from "./steps.ts";

/** The machine as `start()` found it. */
interface Machine {
  readonly summary: string;
  readonly runner: IpvsRunner;
  readonly writer: IpvsWriter;
  readonly drift: DriftWatch;
  readonly record: ServerRecordWriter;
  readonly taken: TakenServers;
  readonly features: IpvsFeatures;
  /**
   * Whether neither the device nor rules of iptables mode, whose chains ipvs mode shares, existed.
   */
  readonly isFresh: boolean;
}

/** The first version of iptables with `--random-fully`. */
const RANDOM_FULLY = [1, 6, 2];

/** An ipvs backend for one IP family. Runs nothing before it is started. */
export class IpvsBackend extends RuleBackend<Machine> implements Backend {
  readonly mode = "ipvs";
  readonly #dependencies: IpvsBackendDependencies;
  readonly #options: IpvsBackendOptions;
  readonly #comparison: KernelComparison;
  #hasCleared = false;

  constructor(dependencies: IpvsBackendDependencies, options: IpvsBackendOptions) {
    super(options);
    this.#dependencies = dependencies;
    this.#options = options;
    const renderOptions = (plan: ProxyPlan) => this.#renderOptions(plan);
    this.#comparison = new KernelComparison(dependencies, { ...options, renderOptions });
  }

  hostSettings(): readonly HostSettingRequest[] {
    const { family, strictArp } = this.#options;
    const interfaces = new Set(
      this.#dependencies.network.interfaceAddresses()
        .filter(({ interfaceName, address }) =>
          interfaceName !== DEVICE && ipFamilyOf(address) === "IPv4" && !isLoopback(address)
        ).map(({ interfaceName }) => interfaceName),
    );
    return ipvsHostSettings({ family, strictArp, interfaces, kernelRelease: Deno.osRelease() });
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIpvsMode(this.#dependencies, { scheduler: this.#options.scheduler });
  }

  protected async prepare(): Promise<Machine> {
    const { clock, commands, logger, recordFile: file } = this.#dependencies;
    if (this.#options.problem !== undefined) {
      throw new Error(`Cannot start mode ipvs: ${this.#options.problem}`);
    }
    const { excludeCidrs, drainTimeoutMs, syncPeriodMs: periodMs } = this.#options;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot start mode ipvs for ${this.family}: ${choice.problem}`);
    }
    const { programs: { variant, version }, reason } = choice;
    logger.info("Chose the variant of iptables", { variant, version, reason });
    const iptables = new IptablesRunner({ commands }, choice.programs);
    const runner = new IpvsRunner({ clock, commands, iptables });
    const found = await runner.deviceAddresses();
    await setConnectionTimeouts({ logger, runner }, this.#options.timeouts);
    const record = new ServerRecordWriter({ clock, logger, file });
    await record.open();
    const taken = new TakenServers({ logger });
    const tools = { clock, runner, record, taken };
    const writer = new IpvsWriter(tools, { excludeCidrs, drainTimeoutMs });
    const edges = { ...this.#dependencies, runner, iptables, writer, turns: this.turns };
    const drift = createServerWatch(edges, { periodMs });
    const summary = `virtual servers on ${DEVICE}, scheduler ${this.#options.scheduler}`;
    const parsed = parseVersion(version);
    const features = { randomFully: parsed === undefined || isAtLeast(parsed, RANDOM_FULLY) };
    return {
      ...{ summary, runner, writer, drift, record, taken, features },
      isFresh: found === undefined && !await hasServiceRules(iptables),
    };
  }

  explain: Backend["explain"] = (plan, explanation, hit) =>
    explainIpvs(plan, explanation, hit, this.#renderOptions(plan));

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.#renderOptions(plan), keys);
  }

  facts(): MachineFacts | undefined {
    if (this.machine === undefined) return undefined;
    return { features: { ...this.machine.features } };
  }

  compare(plan: ProxyPlan, scope?: ComparisonScope): ReturnType<Backend["compare"]> {
    return this.#comparison.compare(plan, scope);
  }

  repair(plan: ProxyPlan, scope?: ComparisonScope): ReturnType<Backend["repair"]> {
    return this.#comparison.repair(plan, scope);
  }

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const layout = this.machine?.writer.layout;
    if (this.machine === undefined || layout === undefined) {
      return { summary: this.machine?.summary ?? "not started", services: [], quarantined: [] };
    }
    const { runner, taken, writer } = this.machine;
    const summary = [this.machine.summary, taken.describe(layout) ?? []].flat().join("; ");
    const services = await inspectServices({ ...this.#dependencies, layout, runner }, keys);
    const all = writer.quarantined;
    const quarantined = keys ? all.filter(({ key }) => keys.includes(key)) : all;
    return { summary, services, quarantined };
  }

  /** Counts writes of iptables only: kube-proxy has no metrics for sets and virtual servers. */
  ruleCounters(): Promise<RuleCounters> {
    const failedWrites = this.machine?.writer.failedRestores ?? 0;
    return Promise.resolve({ failedWrites, failedPartialWrites: 0, failedCleanups: 0 });
  }

  /** Leaves cluster IPs: they serve also while no API server can be reached. */
  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    return this.turns.run(async () => {
      const { runner } = this.machine ?? {};
      return runner === undefined ? [] : await giveUpAddresses(runner, this.family, isForeign);
    });
  }

  override ownsAddress(_address: IpAddress, interfaceName: string): boolean {
    return interfaceName === DEVICE;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]();
    await this.machine?.record.close();
  }

  protected async remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const { family, excludeCidrs } = this.#options;
    const { recordFile } = this.#dependencies;
    const earlierNodePorts = await recordedNodePorts(recordFile);
    const removal = { family, excludeCidrs, earlierNodePorts, dryRun };
    const report = await removeOwnObjects(this.#dependencies, removal);
    // A failed cleanup needs the file again. A file that cannot be removed does no harm.
    if (!dryRun && report.failed.length === 0) await recordFile.remove().catch(() => {});
    return report;
  }

  protected async write(
    { writer }: Machine,
    plan: ProxyPlan,
    changes: PlanChanges,
  ): Promise<SyncReport> {
    const figures = new WriteFigures();
    const full = changes.everything || !writer.isKnown;
    try {
      await writer.take(plan, { changes, options: this.#renderOptions(plan) });
      await writer.write(figures);
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full, cause });
    }
    if (!changes.isPartial) await this.#clearStaleChains();
    return {
      full,
      services: changes.upserted.size + changes.removed.size,
      operations: figures.operations,
      quarantined: writer.quarantined,
      ...(writer.isPending && { isUnfinished: true }),
    };
  }

  /** Removes chains of other modes, once. They may be in use until a sync has written all rules. */
  async #clearStaleChains(): Promise<void> {
    if (this.#hasCleared) return;
    this.#hasCleared = true;
    const { logger } = this.#dependencies;
    const { removed, failed } = await removeStaleChains(this.#dependencies, this.family);
    if (removed.length > 0) logger.info("Removed unused chains", { removed });
    if (failed.length > 0) logger.warn("Cannot remove unused chains", { failed });
  }

  #renderOptions({ shared: { interfaceAddresses } }: ProxyPlan): IpvsRenderOptions {
    const { family, masqueradeBit, scheduler, facts = { features: {} } } = this.#options;
    const { features } = this.machine ??
      { features: featuresFound(defaultIpvsOptions(family).features, facts) };
    return {
      family,
      features,
      masqueradeBit,
      scheduler,
      nodeAddresses: new Set(interfaceAddresses),
    };
  }
}

/**
 * Whether the chain shared by iptables mode and kube-proxy exists. Unreadable tables count as yes.
 */
async function hasServiceRules(iptables: IptablesRunner): Promise<boolean> {
  try {
    return await iptables.rulesOf("nat", "KUBE-SERVICES") !== undefined;
  } catch {
    return true;
  }
}
