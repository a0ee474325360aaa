import type { Cidr } from "../net/cidr.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";

/**
 * The metric of routes to pods: preferred to those of BGP (512) and to IPv6's default one (1024).
 * Routes of networks on the node have a lower one, and are preferred.
 */
export const POD_ROUTE_METRIC = 256;

/** The tasks of this node for the network of pods. Deeply read-only. */
export interface PodNetworkPlan {
  /** The ranges of this node's pods. */
  readonly podCidrs: readonly Cidr[];
  /** The first InternalIP of each family. The MTU is that of their interface. */
  readonly addresses: readonly IpAddress[];
  /** Sorted by destination. */
  readonly routes: readonly PodRoute[];
  /** Sorted by device. */
  readonly tunnels: readonly PodTunnel[];
  /** Whether the MTU of pods has to leave room for the header of a tunnel. */
  readonly isOverlay: boolean;
  /** Absent = that of the node's interface, less the header of a tunnel. */
  readonly mtu?: number;
  /** Absent if no CNI configuration is written. */
  readonly cni?: { readonly path: string; readonly portMappings: boolean };
  /** Absent if traffic of pods keeps its source. */
  readonly masquerade?: {
    readonly sources: readonly Cidr[];
    /** Destinations in the cluster. */
    readonly except: readonly Cidr[];
  };
  /** Nodes without a route, because a router has to know it. */
  readonly unrouted: readonly PodNetworkProblem[];
  readonly problems: readonly PodNetworkProblem[];
}

/** A part of a Node that cannot be used. */
export interface PodNetworkProblem {
  readonly node: string;
  readonly reason: string;
}

/** A route to the pods of another node. */
export interface PodRoute {
  readonly destination: Cidr;
  readonly node: string;
  /** The address of the node, which is on a network of this one; absent with a tunnel. */
  readonly gateway?: IpAddress;
  /** The device of a tunnel. */
  readonly tunnel?: string;
  /** The source that this node itself uses. */
  readonly source?: IpAddress;
}

/** A tunnel to another node. */
export interface PodTunnel {
  readonly device: string;
  readonly node: string;
  readonly family: IpFamily;
  readonly local: IpAddress;
  readonly remote: IpAddress;
  /** Replies of pods to this address come back through the tunnel. Absent = the node has no pods. */
  readonly source?: IpAddress;
}
