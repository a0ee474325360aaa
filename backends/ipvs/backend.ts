/**
 * The ipvs mode: virtual servers of the kernel, with sets and rules around them.
 *
 * What is wanted is in `layout.ts`, what the kernel holds in `ipvs_writer.ts`; a sync is the
 * difference. All of it stays when the process ends, and a start takes it over, kube-proxy's as well.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { Logger } from "../../lib/log/logger.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { Network } from "../../lib/os/network.ts";
import type {
  Backend,
  BackendInspection,
  CleanupReport,
  ProbeResult,
  ServiceInspection,
  SyncReport,
} from "../../lib/proxy/backend.ts";
import type { HostSettingWish } from "../../lib/proxy/host_setting.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { SyncFailure } from "../../lib/proxy/sync_failure.ts";
import { isAtLeast, parseVersion } from "../netfilter/probe/tool_version.ts";
import { IptablesRunner } from "../netfilter/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables_variant.ts";
import type { DriftFigures } from "../netfilter/drift_figures.ts";
import { OneAtATime } from "../netfilter/one_at_a_time.ts";
import { pauseBetween } from "../netfilter/pause_between.ts";
import { DEVICE } from "./diff.ts";
import { ipvsHostSettings } from "./host_settings.ts";
import { inspectService } from "./inspect.ts";
import { IpvsRunner } from "./ipvs_runner.ts";
import { IpvsWatch } from "./ipvs_watch.ts";
import { IpvsWriter } from "./ipvs_writer.ts";
import { removeOwnObjects, removeStaleChains } from "./own_objects.ts";
import { probeIpvsMode } from "./probe.ts";
import { defaultIpvsOptions, type IpvsFeatures, type IpvsRenderOptions } from "./render_options.ts";
import { renderText } from "./render_text.ts";
import type { Scheduler } from "./scheduler.ts";
import { WriteFigures } from "./write_figures.ts";

/** The edges of the ipvs backend. */
export interface IpvsBackendDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
  readonly network: Network;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  /** Told when something of ours was found missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** Settings of the ipvs backend. Times are milliseconds. */
export interface IpvsBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  readonly scheduler: Scheduler;
  readonly excludeCidrs: readonly Cidr[];
  readonly strictArp: boolean;
  /** 0 leaves what the kernel has. */
  readonly timeouts: { readonly tcp: number; readonly tcpFin: number; readonly udp: number };
  /** How often the kernel is looked at. */
  readonly syncPeriodMs: number;
  /** Longest time for the connections of a removed endpoint to end; 0 = as long as they like. */
  readonly drainTimeoutMs: number;
  /** Why it cannot be started: a setting that makes no sense. */
  readonly problem?: string;
  /** What the configuration and the Node say now. */
  readonly node: () => { readonly nodeIp?: IpAddress };
}

/** Makes an ipvs backend for one IP family. Runs nothing before it is started. */
export function createIpvsBackend(
  dependencies: IpvsBackendDependencies,
  options: IpvsBackendOptions,
): Backend {
  return new IpvsBackend(dependencies, options);
}

/** What `start()` found out of the machine. */
interface Machine {
  readonly summary: string;
  readonly runner: IpvsRunner;
  readonly writer: IpvsWriter;
  readonly watch: IpvsWatch;
  readonly features: IpvsFeatures;
  /** On the device when the process began: none of the node's own. */
  readonly found: ReadonlySet<IpAddress>;
}

const MS_PER_SECOND = 1_000;
/** The first iptables that has it. */
const RANDOM_FULLY = [1, 6, 2];

class IpvsBackend implements Backend {
  readonly mode = "ipvs";
  readonly usesConntrack = true;
  readonly family: IpFamily;
  readonly #dependencies: IpvsBackendDependencies;
  readonly #options: IpvsBackendOptions;
  readonly #turns = new OneAtATime();
  #machine: Machine | undefined;
  #hasCleared = false;

  constructor(dependencies: IpvsBackendDependencies, options: IpvsBackendOptions) {
    this.family = options.family;
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(): readonly HostSettingWish[] {
    return ipvsHostSettings(this.#options);
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIpvsMode(this.#dependencies, { scheduler: this.#options.scheduler });
  }

  async start(): Promise<void> {
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
    const found = await runner.deviceAddresses() ?? new Set();
    await this.#setTimeouts(runner);
    const writer = new IpvsWriter({ clock, runner }, { excludeCidrs, drainTimeoutMs });
    const edges = { ...this.#dependencies, runner, iptables, writer, turns: this.#turns };
    const watch = new IpvsWatch(edges, { periodMs });
    const summary = `virtual servers on ${DEVICE}, scheduler ${this.#options.scheduler}`;
    const parsed = parseVersion(version);
    const features = { randomFully: parsed === undefined || isAtLeast(parsed, RANDOM_FULLY) };
    this.#machine = { summary, runner, writer, watch, features, found };
    watch.start();
  }

  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    return this.#turns.run(() => this.#sync(plan, changes));
  }

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.#renderOptions(), keys);
  }

  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const { summary = "not started", runner, writer } = this.#machine ?? {};
    const layout = writer?.layout;
    if (layout === undefined || runner === undefined || writer === undefined) {
      return { summary, services: [], quarantined: [] };
    }
    const servers = await runner.servers();
    const seen = new Map(servers.map((server) => [server.key, server]));
    const pause = pauseBetween(this.#dependencies.clock);
    const services: ServiceInspection[] = [];
    for (const key of keys ?? layout.keys) {
      const plan = layout.plan(key);
      if (plan) services.push(inspectService(plan, { layout, seen }));
      await pause();
    }
    const all = writer.quarantined;
    const quarantined = keys ? all.filter(({ key }) => keys.includes(key)) : all;
    return { summary, services, quarantined };
  }

  ownsAddress(address: IpAddress): boolean {
    const { found, writer } = this.#machine ?? {};
    return writer?.ownsAddress(address) === true ||
      (found?.has(address) === true && ipFamilyOf(address) === this.family);
  }

  cleanup(): Promise<CleanupReport> {
    return this.#remove(false);
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.#remove(true);
  }

  /** Open connections are the kernel's: they go on whether this process does or not. */
  async drain(): Promise<void> {
    await this.#machine?.watch.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#machine?.watch.stop();
  }

  #remove(dryRun: boolean): Promise<CleanupReport> {
    const { family, excludeCidrs } = this.#options;
    return removeOwnObjects(this.#dependencies, { family, excludeCidrs, dryRun });
  }

  async #sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    if (this.#machine === undefined) {
      throw new Error("Cannot sync virtual servers: start() has not succeeded");
    }
    const { writer } = this.#machine;
    const figures = new WriteFigures();
    const full = changes.everything || !writer.isKnown;
    try {
      await writer.take(plan, { changes, options: this.#renderOptions() });
      await writer.write(figures);
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full, cause });
    }
    await this.#clearStaleChains();
    return {
      full,
      services: changes.upserted.size + changes.removed.size,
      operations: figures.operations,
      quarantined: writer.quarantined,
    };
  }

  /** Once, when all of ours is there: then nothing needs what was there before. */
  async #clearStaleChains(): Promise<void> {
    if (this.#hasCleared) return;
    this.#hasCleared = true;
    const { logger } = this.#dependencies;
    const { removed, failed } = await removeStaleChains(this.#dependencies, this.family);
    if (removed.length > 0) logger.info("Removed chains that are out of use", { removed });
    if (failed.length > 0) logger.warn("Cannot remove chains that are out of use", { failed });
  }

  /** A kernel that refuses them serves all the same. */
  async #setTimeouts(runner: IpvsRunner): Promise<void> {
    const { tcp, tcpFin, udp } = this.#options.timeouts;
    if (tcp + tcpFin + udp === 0) return;
    const seconds = [tcp, tcpFin, udp].map((ms) => Math.ceil(ms / MS_PER_SECOND));
    const [first = 0, second = 0, third = 0] = seconds;
    try {
      await runner.setTimeouts([first, second, third]);
    } catch (error) {
      this.#dependencies.logger.warn("Cannot set time-outs of IPVS", { error });
    }
  }

  #renderOptions(): IpvsRenderOptions {
    const { family, masqueradeBit, scheduler, node } = this.#options;
    const { features } = this.#machine ?? defaultIpvsOptions(family);
    const { nodeIp } = node();
    return {
      family,
      features,
      masqueradeBit,
      scheduler,
      ...(nodeIp !== undefined && { nodeIp }),
      nodeAddresses: this.#nodeAddresses(),
    };
  }

  #nodeAddresses(): ReadonlySet<IpAddress> {
    // Before it is started it is asked for text only, and that is not to depend on the machine.
    if (this.#machine === undefined) return new Set();
    const all = this.#dependencies.network.interfaceAddresses();
    return new Set(
      all.filter(({ interfaceName, address }) =>
        interfaceName !== DEVICE && ipFamilyOf(address) === this.family
      ).map(({ address }) => address),
    );
  }
}
