/**
 * What a sync needs of a data plane, and what a data plane answers. Owned by its callers; implementations
 * are in `backends/`.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { HostSettingRequest } from "./host_setting.ts";
import type { NodePortAddresses } from "./node_port_addresses.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** A ServicePort, or one address of it, that could not be brought into effect. The others are. */
export interface Quarantined {
  readonly key: ServicePortKey;
  /** The address concerned, e.g. `10.96.0.10:53/UDP`, where it is not the whole ServicePort. */
  readonly address?: string;
  /** What failed and why, with the cure where one is known. */
  readonly reason: string;
  /**
   * What the kernel refused, and from when on a sync tries it again, RFC 3339. Until then nothing of the
   * ServicePort is wanted in the kernel. Absent where it is no refusal: each sync looks at those.
   */
  readonly retryAt?: string;
}

/** What one sync did. Returned, not pushed; counts, never estimates. */
export interface SyncReport {
  /** Whether everything was compared, or only what changed. */
  readonly full: boolean;
  /** ServicePorts looked at. */
  readonly services: number;
  /** Operations on the data plane, by name (`listen`, `close`, `rules`, `bytes` …); zero ones left out. */
  readonly operations: Readonly<Record<string, number>>;
  /** Everything that is in quarantine now, not only since this sync. */
  readonly quarantined: readonly Quarantined[];
  /** By a mode that has iptables' tables: rules of ours in each, and those written by this sync. */
  readonly rules?: Readonly<
    Partial<Record<"nat" | "filter", { readonly total: number; readonly last: number }>>
  >;
}

/** What a cleanup did. */
export interface CleanupReport {
  /** One line for each thing removed, e.g. `address 10.96.0.1/32 on lo`. */
  readonly removed: readonly string[];
  /** What could not be removed, with the reason. */
  readonly failed: readonly string[];
  /** What was left on purpose, with the reason, e.g. a chain that other software refers to. */
  readonly kept?: readonly string[];
  /** Of a dry run: what it would run, each a command of a shell with its input and a line feed. */
  readonly commands?: readonly string[];
}

/**
 * What carries out the plans of one IP family. A constructor has no side effect; nothing is opened or
 * run before `start()`.
 */
export interface DataPlane extends AsyncDisposable {
  readonly family: IpFamily;
  /** Whether the kernel's connection tracking decides for packets of known flows, past the rules. */
  readonly usesConntrack: boolean;
  /**
   * Whether the first plans may be such that {@linkcode PlanChanges.isPartial} says so, as known after
   * `start()`. A mode whose first sync replaces what serves now does not take them where there is
   * something: it goes on serving as it is.
   */
  readonly takesPartialPlans: boolean;
  /**
   * Settings of the machine that it needs, for node ports as they are configured. Asked before
   * `start()`, and again where interfaces are new.
   */
  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[];
  /** Reads what the machine holds from an earlier run and adopts it. Nothing is torn down. */
  start(): Promise<void>;
  /**
   * Brings the data plane from what it holds to `plan`. `changes` are relative to the last sync that
   * did not throw. What cannot be had is quarantined in the report; a throw means that the outcome
   * is unknown or nothing was applied, and that the same changes come again.
   * The caller has one sync in flight at most.
   */
  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport>;
  /** Another program has written where this one writes: what is there is compared soon. */
  recheck(): void;
  /** Whether it put the address on an interface: it is then none of the node's own. */
  ownsAddress(address: IpAddress): boolean;
  /** Removes everything that this mode ever added to the machine, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** What {@linkcode cleanup} would remove. Changes nothing. */
  previewCleanup(): Promise<CleanupReport>;
  /** Takes no new connections and waits for open ones, at most so long. Kernel state stays. */
  drain(timeoutMs: number): Promise<void>;
}
