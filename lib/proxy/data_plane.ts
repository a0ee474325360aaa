/**
 * The data plane of Services, of one IP family. Implementations are in `backends/`.
 *
 * @module
 */
import type * as controller from "../controller/data_plane.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { HostSettingRequest } from "./host_setting.ts";
import type { NodePortAddresses } from "./node_port_addresses.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** A ServicePort, or one address of it, that could not be brought into effect. */
export type Quarantined = controller.Quarantined<ServicePortKey>;

/** What one sync did. */
export interface SyncReport extends controller.SyncReport<ServicePortKey> {
  /** ServicePorts looked at. */
  readonly services: number;
  /** By a mode that has iptables' tables: rules of ours in each, and those written by this sync. */
  readonly rules?: Readonly<
    Partial<Record<"nat" | "filter", { readonly total: number; readonly last: number }>>
  >;
}

/** What carries out the plans of one IP family. */
export interface DataPlane extends controller.DataPlane<ProxyPlan, PlanChanges, SyncReport> {
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
  /** Whether it put the address on its interface: the address is then none of the node's own. */
  ownsAddress(address: IpAddress, interfaceName: string): boolean;
}
