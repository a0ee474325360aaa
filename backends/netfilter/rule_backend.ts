import type { CleanupReport, DataPlaneEdges } from "../../lib/engine/data_plane.ts";
import type { PacketHit } from "../../lib/proxy/packet_hit.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../lib/net/ip_address.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { Backend, BackendMode, RuleCounters } from "../../lib/proxy/backend.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type { HostSettingRequest } from "../../lib/proxy/host_setting.ts";
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { renderOneByOne } from "../../lib/proxy/service_mode.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { DriftFigures, DriftWatch } from "./drift_watch.ts";

/** The edges of a backend that writes rules. */
export interface RuleBackendDependencies extends DataPlaneEdges {
  /** Called when objects in the kernel were missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** The settings of a backend that writes rules. */
export interface RuleBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  /** Maximum interval of checks for a flush, milliseconds. */
  readonly syncPeriodMs: number;
  /** The facts of a machine, for rendering without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}

/** The parts of a started backend that every mode has. */
interface StartedBackend {
  readonly drift: DriftWatch;
  /** Whether no rules of an earlier run, or of kube-proxy, existed. */
  readonly isFresh: boolean;
}

/** The kernel setting for node ports on 127.0.0.1: without it, such packets never leave the node. */
export const ROUTE_LOCALNET: HostSettingRequest = {
  name: "net.ipv4.conf.all.route_localnet",
  value: "1",
  purpose: "serve node ports on 127.0.0.1",
};

/** Returns why no node port is served at a loopback address; `undefined` if one is. */
export function noLocalhostReason(
  { frontend: { role } }: PacketHit,
  { to }: Packet,
  { family, localhostNodePorts, cure }: {
    readonly family: IpFamily;
    readonly localhostNodePorts: boolean;
    /** The reason in IPv4, which is a setting. */
    readonly cure: string;
  },
): string | undefined {
  if (role !== "NodePort" || !isLoopback(to)) return undefined;
  if (family === "IPv6") return "IPv6 has no route_localnet: packets to ::1 stay on loopback";
  return localhostNodePorts ? undefined : cure;
}

/** The common part of modes whose rules the kernel applies. */
export abstract class RuleBackend<Machine extends StartedBackend> implements
  Omit<
    Backend,
    "compare" | "explain" | "facts" | "hostSettings" | "inspect" | "probe" | "repair"
  > {
  abstract readonly mode: BackendMode;
  readonly usesConntrack = true;
  readonly family: IpFamily;
  readonly counting = this;
  /** Serializes syncs, checks of the kernel and repairs. */
  protected readonly turns = new OneAtATime();
  /** The machine as `start()` found it. */
  protected machine: Machine | undefined;

  constructor({ family }: Pick<RuleBackendOptions, "family">) {
    this.family = family;
  }

  /** Reads the machine. Throws if the mode cannot run on it. */
  protected abstract prepare(): Promise<Machine>;
  /** Writes a plan. */
  protected abstract write(
    machine: Machine,
    plan: ProxyPlan,
    changes: PlanChanges,
  ): Promise<SyncReport>;
  protected abstract remove(options: { readonly dryRun: boolean }): Promise<CleanupReport>;
  abstract render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string>;
  abstract ruleCounters(): Promise<RuleCounters>;

  get takesPartialPlans(): boolean {
    return this.machine?.isFresh === true;
  }

  async start(): Promise<void> {
    this.machine = await this.prepare();
    this.machine.drift.start();
  }

  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    return this.turns.run(async () => {
      if (this.machine === undefined) {
        throw new Error(`Cannot sync mode ${this.mode}: start() has not succeeded`);
      }
      return await this.write(this.machine, plan, changes);
    });
  }

  renderEach: Backend["renderEach"] = (plan, keys) =>
    renderOneByOne({ render: (key) => this.render(plan, new Set([key])) }, keys);

  findMissing: Backend["findMissing"] = () => Promise.resolve(undefined);

  findAffinity: Backend["findAffinity"] = () =>
    Promise.reject(new Error(`mode ${this.mode} does not show which client has which endpoint`));

  refreshTraffic(): Promise<void> {
    return Promise.resolve();
  }

  recheck(): void {
    this.machine?.drift.recheck();
  }

  ownsAddress(_address: IpAddress, _interfaceName: string): boolean {
    return false;
  }

  cleanup(): Promise<CleanupReport> {
    return this.remove({ dryRun: false });
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.remove({ dryRun: true });
  }

  /** The kernel keeps open connections, whether this process runs or not. */
  async drain(): Promise<void> {
    await this.machine?.drift.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.machine?.drift.stop();
  }
}
