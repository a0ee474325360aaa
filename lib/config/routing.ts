/**
 * The settings of load balancer addresses and routes: the block `routing` of the configuration. It
 * is an extension: kube-proxy reads a file that has it, and warns of an unknown field.
 *
 * @module
 */
import type { RoutingSettings } from "../routing/routing_settings.ts";

/** A selector, with the fields of Kubernetes. */
export interface SelectorConfiguration {
  readonly matchLabels?: Readonly<Record<string, string>> | undefined;
  readonly matchExpressions?:
    | readonly {
      readonly key: string;
      readonly operator: string;
      readonly values?: readonly string[] | undefined;
    }[]
    | undefined;
}

/** A pool of addresses for Services of type LoadBalancer. */
export interface PoolConfiguration {
  readonly name: string;
  /** CIDRs, single addresses, and ranges `first-last`. */
  readonly addresses: readonly string[];
  /** Whether Services get an address of the pool without asking for it. */
  readonly autoAssign: boolean;
  /** Empty = {@linkcode RoutingConfiguration.announce}. */
  readonly announce: string;
  readonly namespaceSelector?: SelectorConfiguration | null | undefined;
  readonly serviceSelector?: SelectorConfiguration | null | undefined;
  /** The nodes that may announce the addresses. */
  readonly nodeSelector?: SelectorConfiguration | null | undefined;
}

/** Routes that are accepted from one external peer. */
export interface PeerImportConfiguration {
  /** Ranges, each with any longer prefix in it, or blocks with the lengths that are accepted. */
  readonly prefixes: readonly (string | ImportedPrefixConfiguration)[];
  /** The same, for ranges of the cluster: nodes, pods, Services and pools are refused otherwise. */
  readonly clusterPrefixes: readonly (string | ImportedPrefixConfiguration)[];
  readonly defaultRoute: boolean;
}

/** Prefixes in a range, by their lengths. */
export interface ImportedPrefixConfiguration {
  readonly prefix: string;
  /** 0 = that of the range. */
  readonly minLength: number;
  /** 0 = without limit. */
  readonly maxLength: number;
}

/** An external BGP peer. */
export interface PeerConfiguration {
  /** Empty = made from the address. */
  readonly name: string;
  readonly address: string;
  readonly port: number;
  readonly as: number;
  /** Empty = chosen by the kernel. */
  readonly localAddress: string;
  /** Empty = no password. */
  readonly passwordFile: string;
  /** 0 = the peer is on a network of the node. */
  readonly multihopTtl: number;
  readonly holdTimeSeconds: number;
  readonly bfd: boolean;
  /** 0 = no graceful restart. */
  readonly gracefulRestartSeconds: number;
  readonly prepend: number;
  readonly nextHopSelf: boolean;
  /** Whether the session also carries announcements of the other IP family. */
  readonly bothFamilies: boolean;
  /** The next hop of those; "" = the node's own InternalIP of that family. */
  readonly otherNextHop: string;
  /** What is accepted from the peer. Absent = {@linkcode BgpConfiguration.imports}. */
  readonly import?: PeerImportConfiguration | null | undefined;
  /** The nodes that have the session. */
  readonly nodeSelector?: SelectorConfiguration | null | undefined;
}

/** The BGP settings. */
export interface BgpConfiguration {
  readonly enabled: boolean;
  /** 0 = that of the Node's annotation, or else 64512. */
  readonly localAs: number;
  /** Empty = the node's IPv4 address, or a hash of its name. */
  readonly routerId: string;
  /** Sessions with all nodes of the same AS. */
  readonly mesh: boolean;
  /** Whether annotations of Nodes are read, by kube-router's names. */
  readonly nodeAnnotations: boolean;
  /** Peers, or texts `AS@ADDRESS` and `AS@ADDRESS:PORT`. */
  readonly peers: readonly (string | PeerConfiguration)[];
  readonly advertise: {
    readonly loadBalancerIps: boolean;
    readonly externalIps: boolean;
    readonly clusterIps: boolean;
    readonly podCidrs: boolean;
    readonly serviceRanges: boolean;
  };
  /** External IPs outside of them are never announced: tenants choose external IPs. */
  readonly externalIpRanges: readonly string[];
  readonly communities: readonly string[];
  readonly largeCommunities: readonly string[];
  /** 0 = the default of the peers. */
  readonly localPreference: number;
  readonly imports: {
    /** Ranges that are accepted from external peers. */
    readonly external: readonly string[];
    readonly defaultRoute: boolean;
    readonly table: number;
    readonly metric: number;
    readonly limitPerPeer: number;
  };
  /** Of BIRD. */
  readonly controlSocket: string;
  /** Of BIRD; kube-relay writes it. */
  readonly configFile: string;
}

/** The network of pods, on a cluster without a network plugin that routes. */
export interface PodNetworkConfiguration {
  /** Routes to the pods of nodes in the same subnet. */
  readonly routes: boolean;
  /** Which nodes are reached through a tunnel: `off`, `cross-subnet` or `always`. */
  readonly overlay: string;
  /** Path of the CNI configuration that kube-relay writes; empty = none. */
  readonly cniConfig: string;
  /** Of pods and tunnels; 0 = that of the node's interface, less the header of a tunnel. */
  readonly mtu: number;
  /** Whether the CNI configuration has the plugin of host ports. */
  readonly portMappings: boolean;
  /** Whether pods reach addresses outside of the cluster with the address of the node. */
  readonly masquerade: boolean;
}

/** The fields of the block. */
export interface RoutingConfiguration extends
  Pick<
    RoutingSettings,
    | "loadBalancerClass"
    | "defaultLoadBalancerClass"
    | "leaseNamespace"
    | "leaseDurationSeconds"
    | "layer2"
  > {
  readonly enabled: boolean;
  /** Path of a kubeconfig; empty = the connection of Services. */
  readonly kubeconfig: string;
  /** How pools without a setting of their own are announced. */
  readonly announce: string;
  /** Pools, or texts `NAME=ADDRESSES` and `ADDRESSES`; those without a name are `default`. */
  readonly pools: readonly (string | PoolConfiguration)[];
  readonly podNetwork: PodNetworkConfiguration;
  readonly bgp: BgpConfiguration;
}

/** The file of `--cni-config` without a value. `--cleanup` removes it too, if kube-relay wrote it. */
export const DEFAULT_CNI_CONFIG = "/etc/cni/net.d/10-kube-relay.conflist";

/** The valid values of some fields; the first one is the default. */
export const ROUTING_CHOICES = {
  announce: ["layer2", "bgp", "none"],
  overlay: ["off", "cross-subnet", "always"],
} as const;

/** The valid numbers of some fields. */
export const ROUTING_LIMITS = {
  port: { from: 1, to: 65_535 },
  /** A 32-bit number; 0 stands for an absent one. */
  as: { from: 0, to: 4_294_967_295 },
  multihopTtl: { from: 0, to: 255 },
  /** RFC 4271 forbids 1 and 2, and 0 would keep a dead peer's routes for ever. */
  holdTimeSeconds: { from: 3, to: 65_535 },
  /** 12 bits in the capability of RFC 4724. */
  gracefulRestartSeconds: { from: 0, to: 4_095 },
  /** Longer paths are refused by many routers. */
  prepend: { from: 0, to: 32 },
  prefixLength: { from: 0, to: 128 },
  leaseDurationSeconds: { from: 2, to: 60 },
  announceIntervalSeconds: { from: 0, to: 3_600 },
  localPreference: { from: 0, to: 4_294_967_295 },
  table: { from: 1, to: 4_294_967_295 },
  metric: { from: 1, to: 4_294_967_295 },
  limitPerPeer: { from: 1, to: 1_000_000 },
  mtu: { from: 0, to: 65_535 },
} as const;
