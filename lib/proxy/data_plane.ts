import type * as controller from "../engine/data_plane.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { HostSettingRequest } from "./host_setting.ts";
import type { NodePortAddresses } from "./node_port_addresses.ts";
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
