/**
 * The settings of load balancer addresses and routes: the block `routing` of the configuration, with the
 * types and defaults of its fields. It is an extension: kube-proxy reads a file that has it, and warns of
 * an unknown field.
 *
 * @module
 */
import * as v from "valibot";
import {
  blocks,
  type BlockValues,
  flag,
  group,
  list,
  strict,
  text,
  wanted,
  wholeNumber,
} from "./configuration_fields.ts";

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
  priority: { from: 0, to: 2_147_483_647 },
} as const;

/** A selector, with the fields of Kubernetes. */
const SELECTOR = v.nullish(strict({
  matchLabels: v.optional(v.record(v.string(), v.string(wanted("text")), wanted("fields"))),
  matchExpressions: v.optional(v.array(
    strict({
      key: v.string(wanted("the name of a label")),
      operator: v.picklist(
        ["In", "NotIn", "Exists", "DoesNotExist"],
        wanted("In, NotIn, Exists or DoesNotExist"),
      ) as v.GenericSchema<unknown, string>,
      values: v.optional(v.array(v.string(wanted("text")), wanted("a list"))),
    }),
    wanted("a list"),
  )),
}));

/** A pool of addresses for Services of type LoadBalancer. */
const POOL = {
  name: v.string(wanted("the name of the pool")),
  // CIDRs, single addresses, and ranges `first-last`.
  addresses: list(),
  // Whether Services get an address of the pool without asking for it.
  autoAssign: flag(true),
  // Pools with a lower number come first, and those with 0 last, as MetalLB has it.
  priority: wholeNumber(0, ROUTING_LIMITS.priority),
  // Empty = that of the block.
  announce: text(),
  namespaceSelector: SELECTOR,
  serviceSelector: SELECTOR,
  nodeSelector: SELECTOR,
};

/** Prefixes in a range, by their lengths: 0 = that of the range, and 0 = without limit. */
const IMPORTED = {
  prefix: v.string(wanted("a CIDR")),
  minLength: wholeNumber(0, ROUTING_LIMITS.prefixLength),
  maxLength: wholeNumber(0, ROUTING_LIMITS.prefixLength),
};

/** An external BGP peer. */
const PEER = {
  // Empty = made from the address.
  name: text(),
  address: text(),
  port: wholeNumber(179, ROUTING_LIMITS.port),
  as: wholeNumber(0, ROUTING_LIMITS.as),
  // Empty = chosen by the kernel.
  localAddress: text(),
  passwordFile: text(),
  // A key of a Secret in the namespace of Leases, instead of the file.
  passwordSecret: v.nullish(strict({ name: text("kube-relay-bgp"), key: text("password") })),
  // 0 = the peer is on a network of the node.
  multihopTtl: wholeNumber(0, ROUTING_LIMITS.multihopTtl),
  holdTimeSeconds: wholeNumber(90, ROUTING_LIMITS.holdTimeSeconds),
  bfd: flag(),
  // 0 = no graceful restart.
  gracefulRestartSeconds: wholeNumber(120, ROUTING_LIMITS.gracefulRestartSeconds),
  prepend: wholeNumber(0, ROUTING_LIMITS.prepend),
  nextHopSelf: flag(),
  // Whether the session also carries announcements of the other IP family, and the next hop of those;
  // empty = the own InternalIP of that family.
  bothFamilies: flag(),
  otherNextHop: text(),
  // What is accepted from the peer; absent = `bgp.imports`.
  import: v.nullish(strict({
    // Ranges, each with any longer prefix in it, or blocks with the lengths that are accepted.
    prefixes: blocks(IMPORTED),
    // Ranges of the cluster: nodes, pods, Services and pools are refused otherwise.
    clusterPrefixes: blocks(IMPORTED),
    defaultRoute: flag(),
  })),
  nodeSelector: SELECTOR,
};

/** The fields of the block. */
export const ROUTING_ENTRIES = {
  enabled: flag(),
  // Empty = the connection of Services.
  kubeconfig: text(),
  // Empty = kube-relay.io/load-balancer.
  loadBalancerClasses: list(),
  defaultLoadBalancerClass: flag(true),
  // Whether pools and peers are also read from objects of the cluster.
  objects: flag(),
  // How pools without a setting of their own are announced.
  announce: text(ROUTING_CHOICES.announce[0]),
  // Pools, or texts `NAME=ADDRESSES` and `ADDRESSES`; those without a name are `default`.
  pools: blocks(POOL),
  leaseNamespace: text("kube-system"),
  leaseDurationSeconds: wholeNumber(3, ROUTING_LIMITS.leaseDurationSeconds),
  layer2: group({
    interfaces: list(),
    announceIntervalSeconds: wholeNumber(60, ROUTING_LIMITS.announceIntervalSeconds),
  }),
  podNetwork: group({
    routes: flag(),
    overlay: text(ROUTING_CHOICES.overlay[0]),
    cniConfig: text(),
    mtu: wholeNumber(0, ROUTING_LIMITS.mtu),
    portMappings: flag(true),
    masquerade: flag(true),
  }),
  bgp: group({
    enabled: flag(),
    // 0 = that of the Node's annotation, or else 64512.
    localAs: wholeNumber(0, ROUTING_LIMITS.as),
    // Empty = the node's IPv4 address, or a hash of its name.
    routerId: text(),
    // Sessions with all nodes of the same AS.
    mesh: flag(),
    // Whether annotations of Nodes are read, by kube-router's names.
    nodeAnnotations: flag(true),
    // Peers, or texts `AS@ADDRESS` and `AS@ADDRESS:PORT`.
    peers: blocks(PEER),
    advertise: group({
      loadBalancerIps: flag(true),
      externalIps: flag(),
      clusterIps: flag(),
      podCidrs: flag(),
      serviceRanges: flag(),
    }),
    // External IPs outside of them are never announced: tenants choose external IPs.
    externalIpRanges: list(),
    communities: list(),
    largeCommunities: list(),
    // 0 = the default of the peers.
    localPreference: wholeNumber(0, ROUTING_LIMITS.localPreference),
    imports: group({
      external: list(),
      defaultRoute: flag(),
      table: wholeNumber(254, ROUTING_LIMITS.table),
      metric: wholeNumber(512, ROUTING_LIMITS.metric),
      limitPerPeer: wholeNumber(1000, ROUTING_LIMITS.limitPerPeer),
    }),
    controlSocket: text("/run/kube-relay-bird/bird.ctl"),
    configFile: text("/run/kube-relay/bird.conf"),
  }),
} as const;

/** The fields of the block. */
export type RoutingConfiguration = BlockValues<typeof ROUTING_ENTRIES>;
export type BgpConfiguration = RoutingConfiguration["bgp"];
export type PoolConfiguration = BlockValues<typeof POOL>;
export type SelectorConfiguration = NonNullable<PoolConfiguration["nodeSelector"]>;
export type PeerConfiguration = BlockValues<typeof PEER>;
export type PeerImportConfiguration = NonNullable<PeerConfiguration["import"]>;

/** Read a pool and a peer with all their fields. */
export const [POOL_SCHEMA, PEER_SCHEMA] = [strict(POOL), strict(PEER)];

/** A peer of which only the defaults are known. */
export const DEFAULT_PEER: PeerConfiguration = v.parse(PEER_SCHEMA, {});

/** A pool of which only the defaults are known. */
export const DEFAULT_POOL: PoolConfiguration = v.parse(POOL_SCHEMA, { name: "default" });
