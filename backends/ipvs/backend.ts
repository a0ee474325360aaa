/**
 * The ipvs mode: virtual servers of the kernel, with sets and rules around them.
 *
 * `layout.ts` says what is wanted, `target.ts` what the engine needs to know to compare and write it.
 * The objects remain when the process ends. The next start adopts them, and also those of kube-proxy.
 *
 * @module
 */
import { type IpAddress, ipFamilyOf, isLoopback } from "../../lib/net/ip_address.ts";
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
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { isAtLeast, parseVersion } from "../netfilter/probe/tool_version.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import type { IpvsBackendDependencies, IpvsBackendOptions } from "./backend_options.ts";
import { giveUpAddresses } from "./give_up_addresses.ts";
import { IpvsRunner, setConnectionTimeouts } from "./ipvs_runner.ts";
import { explainIpvs } from "./explain.ts";
import { ipvsHostSettings } from "./host_settings.ts";
import { inspectServices } from "./inspect.ts";
import { RuleBackend } from "../netfilter/rule_backend.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { createServerWatch } from "./drift_watch.ts";
import { removeOwnObjects, removeStaleChains } from "./own_objects.ts";
import { probeIpvsMode } from "./probe.ts";
import { defaultIpvsOptions, type IpvsFeatures, type IpvsRenderOptions } from "./render_options.ts";
import { ipvsDifferences } from "./differences.ts";
import { IpvsLayout } from "./layout.ts";
import { isEntry } from "./objects.ts";
import { IpvsTarget, IpvsWriter } from "./target.ts";
import { type Change, Reconciler } from "../../lib/engine/reconciler.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { fillLayout, WantedRules } from "../netfilter/wanted_rules.ts";
import { renderText } from "./render.ts";
import { TakenServers } from "./taken_servers.ts";
import { WriteFigures } from "./steps.ts";

type IpvsRules = WantedRules<IpvsLayout, IpvsRenderOptions, WriteFigures>;

/** The machine as `start()` found it. */
interface Machine {
  readonly summary: string;
  readonly runner: IpvsRunner;
  readonly rules: IpvsRules;
  readonly writer: IpvsWriter;
  readonly drift: DriftWatch;
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
  #hasCleared = false;

  constructor(dependencies: IpvsBackendDependencies, options: IpvsBackendOptions) {
    super(options);
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(): readonly HostSettingRequest[] {
    const { family, strictArp } = this.#options;
    const interfaces = new Set(
      this.#dependencies.network.interfaceAddresses()
        .filter(({ interfaceName, address }) =>
          interfaceName !== IPVS_DEVICE && ipFamilyOf(address) === "IPv4" && !isLoopback(address)
        ).map(({ interfaceName }) => interfaceName),
    );
    return ipvsHostSettings({ family, strictArp, interfaces, kernelRelease: Deno.osRelease() });
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIpvsMode(this.#dependencies, { scheduler: this.#options.scheduler });
  }

  protected async prepare(): Promise<Machine> {
    const { clock, commands, logger } = this.#dependencies;
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
    const taken = new TakenServers({ logger });
    const refused = new RefusedItems();
    const tools = { clock, runner, refused, taken };
    const writer = new IpvsWriter(tools, { excludeCidrs, drainTimeoutMs });
    const rules: IpvsRules = new WantedRules({
      ...{ clock, refused, writer },
      createLayout: (shared, options) => new IpvsLayout(shared, options),
      fits: isSame,
    });
    const edges = { ...this.#dependencies, runner, iptables, rules, writer, turns: this.turns };
    const drift = createServerWatch(edges, { periodMs });
    const summary = `virtual servers on ${IPVS_DEVICE}, scheduler ${this.#options.scheduler}`;
    const parsed = parseVersion(version);
    const features = { randomFully: parsed === undefined || isAtLeast(parsed, RANDOM_FULLY) };
    return {
      ...{ summary, runner, rules, writer, drift, taken, features },
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

  compare: Backend["compare"] = async (plan, scope) => {
    const { engine, differencesIn } = await this.#comparison(plan, scope);
    return await differencesIn(await engine.compare());
  };

  repair: Backend["repair"] = async (plan, scope) => {
    const { engine, target, differencesIn } = await this.#comparison(plan, scope);
    const { found, left } = await engine.repair((change) =>
      // A container that is written anew has all entries or rules.
      isInScope(change, scope) || change.kind === "rule" || isEntry(change)
    );
    const { reads: _, ...operations } = target.figures.operations;
    return { found: await differencesIn(found), left: await differencesIn(left), operations };
  };

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const layout = this.machine?.rules.layout;
    if (this.machine === undefined || layout === undefined) {
      return { summary: this.machine?.summary ?? "not started", services: [], quarantined: [] };
    }
    const { runner, rules, taken } = this.machine;
    const summary = [this.machine.summary, taken.describe(layout) ?? []].flat().join("; ");
    const services = await inspectServices({ ...this.#dependencies, layout, runner }, keys);
    const all = rules.quarantined;
    const quarantined = keys ? all.filter(({ key }) => keys.includes(key)) : all;
    return { summary, services, quarantined };
  }

  /** Counts writes of iptables only: kube-proxy has no metrics for sets and virtual servers. */
  ruleCounters(): Promise<RuleCounters> {
    const failedWrites = this.machine?.writer.target.failedRestores ?? 0;
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
    return interfaceName === IPVS_DEVICE;
  }

  protected remove({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const { family, excludeCidrs } = this.#options;
    return removeOwnObjects(this.#dependencies, { family, excludeCidrs, dryRun });
  }

  protected async write(
    { rules, writer: { target } }: Machine,
    plan: ProxyPlan,
    changes: PlanChanges,
  ): Promise<SyncReport> {
    const figures = new WriteFigures();
    const report = await rules.sync(plan, { changes, options: this.#renderOptions(plan), figures });
    if (!changes.isPartial) await this.#clearStaleChains();
    return {
      ...report,
      operations: figures.operations,
      quarantined: rules.quarantined,
      ...(target.isUnfinished && { isUnfinished: true }),
    };
  }

  /** A second engine, for a plan of its own. Each time the tools are chosen again. */
  async #comparison(plan: ProxyPlan, scope: ComparisonScope | undefined) {
    const { clock, commands, network } = this.#dependencies;
    const { drainTimeoutMs, excludeCidrs, facts } = this.#options;
    const { family } = this;
    const choice = await chooseIptables({ commands }, { family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot compare rules of ${family}: ${choice.problem}`);
    }
    const iptables = new IptablesRunner({ commands }, choice.programs);
    const runner = new IpvsRunner({ clock, commands, iptables });
    const own = { drainTimeoutMs, excludeCidrs, isForeign: true };
    const target = new IpvsTarget({ clock, runner }, own);
    target.isWhole = true;
    const options = this.#renderOptions(plan);
    const nodeAddresses = () =>
      network.interfaceAddresses().filter(({ interfaceName, address }) =>
        interfaceName !== IPVS_DEVICE && ipFamilyOf(address) === family
      ).map(({ address }) => address);
    const layout = target.layout = new IpvsLayout(plan.shared, {
      ...options,
      ...(facts === undefined && { nodeAddresses: new Set(nodeAddresses()) }),
    });
    await fillLayout(layout, plan, { clock, quarantined: scope?.quarantined });
    const differencesIn = async (changes: readonly Change<ServicePortKey>[]) =>
      (await ipvsDifferences(target, changes)).filter(({ key }) =>
        key === undefined || scope?.keys === undefined || scope.keys.has(key)
      );
    return { engine: new Reconciler({ clock }, target), target, differencesIn };
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

/** Whether a layout has these settings. */
function isSame(
  { options, shared }: IpvsLayout,
  { localTraffic, nodePortAddresses }: SharedPlan,
  { nodeAddresses, ...others }: IpvsRenderOptions,
): boolean {
  const { nodeAddresses: known, ...rest } = options;
  return deepEqual(shared, { localTraffic, nodePortAddresses }) && deepEqual(rest, others) &&
    known.symmetricDifference(nodeAddresses).size === 0;
}

function isInScope(
  { owner }: Change<ServicePortKey>,
  { keys }: ComparisonScope = {},
): boolean {
  return owner === undefined || keys === undefined || keys.has(owner);
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
