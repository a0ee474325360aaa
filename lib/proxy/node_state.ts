/**
 * What is known of the node that this process serves.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";

/** The own node. */
export interface NodeState {
  readonly name: string;
  /** InternalIPs, then ExternalIPs, in the order of the Node object. */
  readonly addresses: readonly IpAddress[];
  /** Label `topology.kubernetes.io/zone`. */
  readonly zone?: string;
  readonly podCidrs: readonly Cidr[];
}
