/**
 * The shape of the block `routing`: types and defaults of each field.
 *
 * @module
 */
import * as v from "valibot";
import {
  blocks,
  flag,
  group,
  list,
  strict,
  text,
  wanted,
  wholeNumber,
} from "./configuration_fields.ts";
import {
  type PeerConfiguration,
  type PoolConfiguration,
  ROUTING_CHOICES,
  ROUTING_LIMITS,
} from "./routing.ts";

const SELECTOR = v.nullish(strict({
  matchLabels: v.optional(v.record(v.string(), v.string(wanted("text")), wanted("fields"))),
  matchExpressions: v.optional(v.array(
    strict({
      key: v.string(wanted("the name of a label")),
      operator: v.picklist(
        ["In", "NotIn", "Exists", "DoesNotExist"],
        wanted("In, NotIn, Exists or DoesNotExist"),
      ),
      values: v.optional(v.array(v.string(wanted("text")), wanted("a list"))),
    }),
    wanted("a list"),
  )),
}));

const POOL = {
  name: v.string(wanted("the name of the pool")),
  addresses: list(),
  autoAssign: flag(true),
  announce: text(),
  namespaceSelector: SELECTOR,
  serviceSelector: SELECTOR,
  nodeSelector: SELECTOR,
};

const IMPORTED = {
  prefix: v.string(wanted("a CIDR")),
  minLength: wholeNumber(0, ROUTING_LIMITS.prefixLength),
  maxLength: wholeNumber(0, ROUTING_LIMITS.prefixLength),
};

const PEER = {
  name: text(),
  address: text(),
  port: wholeNumber(179, ROUTING_LIMITS.port),
  as: wholeNumber(0, ROUTING_LIMITS.as),
  localAddress: text(),
  passwordFile: text(),
  multihopTtl: wholeNumber(0, ROUTING_LIMITS.multihopTtl),
  holdTimeSeconds: wholeNumber(90, ROUTING_LIMITS.holdTimeSeconds),
  bfd: flag(),
  gracefulRestartSeconds: wholeNumber(120, ROUTING_LIMITS.gracefulRestartSeconds),
  prepend: wholeNumber(0, ROUTING_LIMITS.prepend),
  nextHopSelf: flag(),
  bothFamilies: flag(),
  otherNextHop: text(),
  import: v.nullish(strict({
    prefixes: blocks(IMPORTED),
    clusterPrefixes: blocks(IMPORTED),
    defaultRoute: flag(),
  })),
  nodeSelector: SELECTOR,
};

/** The fields of the block. */
export const ROUTING_ENTRIES = {
  enabled: flag(),
  kubeconfig: text(),
  loadBalancerClass: text("kube-relay.io/load-balancer"),
  defaultLoadBalancerClass: flag(true),
  announce: text(ROUTING_CHOICES.announce[0]),
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
    localAs: wholeNumber(0, ROUTING_LIMITS.as),
    routerId: text(),
    mesh: flag(),
    nodeAnnotations: flag(true),
    peers: blocks(PEER),
    advertise: group({
      loadBalancerIps: flag(true),
      externalIps: flag(),
      clusterIps: flag(),
      podCidrs: flag(),
      serviceRanges: flag(),
    }),
    externalIpRanges: list(),
    communities: list(),
    largeCommunities: list(),
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

/** A peer of which only the defaults are known. */
export const DEFAULT_PEER: PeerConfiguration = v.parse(strict(PEER), {});

/** A pool of which only the defaults are known. */
export const DEFAULT_POOL: PoolConfiguration = v.parse(strict(POOL), { name: "default" });
