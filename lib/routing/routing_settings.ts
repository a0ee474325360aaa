import type { Cidr } from "../net/cidr.ts";
import type { LabelSelector } from "../policy/label_selector.ts";
import type { AddressPool } from "./address_pool.ts";
import type { BgpImports, BgpPeer } from "./bgp_plan.ts";

/**
 * The metric of routes to pods: preferred to those of BGP (512) and to IPv6's default one (1024).
 * Routes of networks on the node have a lower one, and are preferred.
 */
export const POD_ROUTE_METRIC = 256;

/** The configuration of load balancer addresses and routes. Values are parsed. */
export interface RoutingSettings {
  /** Services of one of these classes get addresses. */
  readonly loadBalancerClasses: readonly string[];
  /** Whether Services without a `loadBalancerClass` get addresses too. */
  readonly defaultLoadBalancerClass: boolean;
  readonly pools: readonly AddressPool[];
  /** Whether objects of the cluster have further pools and peers. */
  readonly objects: boolean;
  readonly leaseNamespace: string;
  /** A node that has not renewed its Lease for this long owns no address. */
  readonly leaseDurationSeconds: number;
  readonly layer2: {
    /** Empty = the interface with a network that contains the address. */
    readonly interfaces: readonly string[];
    /** 0 = only after a change. */
    readonly announceIntervalSeconds: number;
  };
  /** Absent if kube-relay does nothing for the network of pods. */
  readonly podNetwork?: PodNetworkSettings;
  /** Absent if BGP is disabled. */
  readonly bgp?: BgpSettings;
}

/** The settings of the network of pods. At least one of its parts is enabled. */
export interface PodNetworkSettings {
  readonly routes: boolean;
  readonly overlay: "off" | "cross-subnet" | "always";
  /** Absent = no CNI configuration is written. */
  readonly cniConfig?: string;
  /** Absent = that of the node's interface, less the header of a tunnel. */
  readonly mtu?: number;
  readonly portMappings: boolean;
  readonly masquerade: boolean;
}

/** The BGP settings of every node. */
export interface BgpSettings {
  /** Absent = that of the Node's annotation, or else {@linkcode DEFAULT_AS}. */
  readonly localAs?: number;
  /** Absent = the node's IPv4 address, or a hash of its name. */
  readonly routerId?: string;
  readonly mesh: boolean;
  readonly nodeAnnotations: boolean;
  readonly peers: readonly ConfiguredPeer[];
  readonly advertise: Readonly<Record<AdvertisedKind, boolean>>;
  /** External IPs outside of them are never announced. */
  readonly externalIpRanges: readonly Cidr[];
  readonly communities: readonly string[];
  readonly largeCommunities: readonly string[];
  readonly localPreference?: number;
  readonly imports: Omit<BgpImports, "mesh" | "refused">;
  readonly controlSocket: string;
  readonly configFile: string;
}

/** The kinds of addresses that can be announced. */
export type AdvertisedKind =
  | "loadBalancerIps"
  | "externalIps"
  | "clusterIps"
  | "podCidrs"
  | "serviceRanges";

/** An external peer. */
export type ConfiguredPeer = Omit<BgpPeer, "role" | "reflectorClusterId"> & {
  /** The nodes that have the session. @default {all} */
  readonly nodeSelector?: LabelSelector;
  /**
   * Whether prefixes of the other family are announced too, with `otherNextHop` or the node's own
   * address. @default {false}
   */
  readonly bothFamilies?: boolean;
};

/** The parts of a process that carry out settings. */
type RoutingPart = "bgp" | "layer2" | "leases" | "namespaces" | "objects";

/** Returns the parts that settings need. A process makes its parts when it starts. */
export function routingPartsOf(
  { pools, bgp, objects }: Pick<RoutingSettings, "pools" | "bgp" | "objects">,
): ReadonlySet<RoutingPart> {
  return new Set<RoutingPart>([
    // An object that comes later may need any of them.
    ...(objects ? ["objects", "leases", "layer2", "namespaces"] as const : []),
    ...(bgp ? ["bgp" as const] : []),
    ...(pools.length > 0 ? ["leases" as const] : []),
    ...pools.flatMap(({ announce, namespaceSelector }) => [
      ...(announce === "layer2" ? ["layer2" as const] : []),
      ...(namespaceSelector ? ["namespaces" as const] : []),
    ]),
  ]);
}

/** Settings without peers and announcements. */
export function withoutSessions(settings: BgpSettings): BgpSettings {
  const advertise = {
    ...{ loadBalancerIps: false, externalIps: false, clusterIps: false },
    ...{ podCidrs: false, serviceRanges: false },
  };
  return { ...settings, peers: [], mesh: false, nodeAnnotations: false, advertise };
}

/** The AS number of kube-router, the first private one. */
export const DEFAULT_AS = 64_512;
