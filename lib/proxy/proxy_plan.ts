/**
 * What has to hold for all Services of one IP family, and what a change of state changes in it.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import type { NodePortAddresses } from "./node_port_addresses.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** Settings of the node that enter into decisions. They do not change while the process runs. */
export interface PlanOptions {
  readonly family: IpFamily;
  readonly localTraffic: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  /** Masquerade everything sent via cluster IPs. */
  readonly masqueradeAll: boolean;
}

/** The part of the plan that all Services share. */
export interface SharedPlan {
  /** Addresses of this node on which node ports are served, sorted. */
  readonly nodePortAddresses: readonly IpAddress[];
  /** Ranges that cluster IPs are taken from, sorted. */
  readonly serviceCidrs: readonly Cidr[];
  readonly localTraffic: LocalTrafficDetector;
}

/** A read-only view of maps that only `updatePlan()` writes. */
export interface ProxyPlan {
  readonly family: IpFamily;
  readonly services: ReadonlyMap<ServicePortKey, ServicePlan>;
  readonly shared: SharedPlan;
}

/** How a plan differs from what was planned at the last successful sync. */
export interface PlanChanges {
  /** Keys whose ServicePlan is new or differs; look it up in the plan. */
  readonly upserted: ReadonlySet<ServicePortKey>;
  /** What went away, as last planned. */
  readonly removed: ReadonlyMap<ServicePortKey, ServicePlan>;
  /** Whether {@linkcode ProxyPlan.shared} differs. */
  readonly shared: boolean;
  /** First sync, or something that all Services depend on changed. `upserted` then holds every key. */
  readonly everything: boolean;
}
