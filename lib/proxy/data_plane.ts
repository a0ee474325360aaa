import type * as controller from "../engine/data_plane.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { NodePortAddresses } from "./node_state.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** A ServicePort, or one address of it, that could not be brought into effect. */
export type Quarantined = controller.Quarantined<ServicePortKey>;

/** The result of one sync. */
export interface SyncReport extends controller.SyncReport<ServicePortKey> {
  /** ServicePorts looked at. */
  readonly services: number;
  /**
   * In a mode with iptables' tables: the number of its rules in each, and of those written by this
   * sync.
   */
  readonly rules?: Readonly<
    Partial<Record<"nat" | "filter", { readonly total: number; readonly last: number }>>
  >;
}

/** Applies the plans of one IP family. */
export interface DataPlane extends controller.DataPlane<ProxyPlan, PlanChanges, SyncReport> {
  readonly family: IpFamily;
  /** Whether the kernel's connection tracking decides for packets of known flows, past the rules. */
  readonly usesConntrack: boolean;
  /**
   * Whether the first plans may be partial; see {@linkcode PlanChanges.isPartial}. Known after
   * `start()`. False if the first sync would replace existing rules that still serve.
   */
  readonly takesPartialPlans: boolean;
  /**
   * Settings of the machine that it needs, for node ports as they are configured. Asked before
   * `start()`, and again where interfaces are new.
   */
  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[];
  /**
   * Gives up addresses that an earlier run made local and no plan of this run has claimed. Returns
   * those that it removed. Never rejects for single ones. Absent in modes that make none local.
   */
  disown?(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]>;
  /** Whether it put the address on its interface: the address is then none of the node's own. */
  ownsAddress(address: IpAddress, interfaceName: string): boolean;
}

/** An object of the data plane that differs from the plan. */
export interface DataPlaneDifference {
  /**
   * The kind of object, in the mode's own words: `chain`, `rule`, `map element`, `ip set entry`,
   * `virtual server`, `address` …
   */
  readonly object: string;
  /**
   * Its name, as the administrator would search for it, e.g. `nat KUBE-SVC-…` or
   * `10.96.0.1:443/TCP`.
   */
  readonly name: string;
  readonly kind: "missing" | "extra" | "altered" | "reordered";
  /** The ServicePort that it serves; absent if all ServicePorts share it. */
  readonly key?: ServicePortKey;
  /** The wanted text in the tool's own language; absent if extra. */
  readonly wanted?: string;
  /** The found text; absent if missing. */
  readonly found?: string;
  /** The remedy, if a repair cannot correct it. */
  readonly cure?: string;
}

/** A recommended or required kernel setting. */
export interface HostSettingRequest {
  /** Name as in `sysctl`, e.g. `net.ipv4.conf.all.route_localnet`. */
  readonly name: string;
  /** The value in the kernel's own spelling. */
  readonly value: string;
  /** Keeps a larger number. @default {false} */
  readonly atLeast?: boolean;
  /** The purpose, as the end of the sentence "is needed to …". */
  readonly purpose: string;
}

/** The result of a request. */
export interface HostSettingOutcome {
  readonly name: string;
  readonly wanted: string;
  /** The previous value; `undefined` = it could not be read. */
  readonly found?: string;
  /** `kept`: it was correct already. `changed`: it was set. `refused`: it is unchanged. */
  readonly state: "kept" | "changed" | "refused";
  readonly purpose: string;
  /** The reason of the refusal. */
  readonly reason?: string;
  /** The command that sets it, if it was refused. */
  readonly cure?: string;
}
