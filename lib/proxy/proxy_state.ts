/**
 * The state that the plan is made from: what the trackers have collected for one IP family.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Endpoint } from "./endpoint.ts";
import type { NodeState } from "./node_state.ts";
import type { ServicePort } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/**
 * A read-only view of maps that only `applyChanges()` writes. The values keep their identity while
 * they are unchanged.
 */
export interface ProxyState {
  readonly services: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Sorted by {@linkcode Endpoint.key}; a ServicePort without endpoints has no entry. */
  readonly endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]>;
  readonly node: NodeState;
  /** Of this family; unsorted. */
  readonly serviceCidrs: readonly Cidr[];
  /** Addresses of this family that the machine's interfaces have, but for those we added ourselves. */
  readonly interfaceAddresses: readonly IpAddress[];
}

/** What a drain of the trackers, or a change of the node, has touched. */
export interface DirtyState {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Node, service CIDRs or interface addresses differ: the shared part of the plan is made anew. */
  readonly shared: boolean;
  /** Every ServicePlan has to be made anew (zone or node name changed, or first sync). */
  readonly everything: boolean;
}
