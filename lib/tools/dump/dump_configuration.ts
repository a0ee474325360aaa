/**
 * The configuration in a dump: every setting that rules depend on, in the form of its file, without
 * paths, credentials and the address of the API server. Reading is left to the parser of the file.
 */
import * as v from "valibot";
import {
  type DumpSettings,
  fields,
  flag,
  list,
  number,
  optional,
  plainText,
  table,
} from "./dump_value.ts";
import { cidr } from "./dump_value.ts";

/** A value of a setting. */
const setting = optional(
  v.nullable(v.union([plainText, number, flag, list(v.union([plainText, number]))])),
);

/** Fields with these names, and blocks. */
function settings(names: string, blocks: v.ObjectEntries = {}) {
  return optional(fields({
    ...Object.fromEntries(names.split(" ").map((name) => [name, setting])),
    ...blocks,
  }));
}

const SELECTOR = optional(fields({
  matchLabels: optional(v.record(plainText, plainText)),
  matchExpressions: optional(
    list(fields({ key: plainText, operator: plainText, values: optional(list(plainText)) })),
  ),
}));

const IMPORTED = optional(list(settings("prefix minLength maxLength").wrapped));

/** The path of the password file says that there is one; it is not the real path. */
const PEER = settings(
  "name address port as passwordFile localAddress multihopTtl holdTimeSeconds bfd " +
    "gracefulRestartSeconds prepend nextHopSelf bothFamilies otherNextHop",
  {
    import: settings("defaultRoute", { prefixes: IMPORTED, clusterPrefixes: IMPORTED }),
    nodeSelector: SELECTOR,
  },
);

const ROUTING = settings(
  "enabled loadBalancerClass defaultLoadBalancerClass announce leaseNamespace leaseDurationSeconds",
  {
    pools: optional(list(
      settings("name addresses autoAssign announce", {
        namespaceSelector: SELECTOR,
        serviceSelector: SELECTOR,
        nodeSelector: SELECTOR,
      }).wrapped,
    )),
    layer2: settings("interfaces announceIntervalSeconds"),
    podNetwork: settings("routes overlay cniConfig mtu portMappings masquerade"),
    bgp: settings(
      "enabled localAs routerId mesh nodeAnnotations externalIpRanges communities largeCommunities " +
        "localPreference",
      {
        peers: optional(list(PEER.wrapped)),
        advertise: settings("loadBalancerIps externalIps clusterIps podCidrs serviceRanges"),
        imports: settings("external defaultRoute table metric limitPerPeer"),
      },
    ),
  },
);

/** Fields of kube-proxy's configuration, with its names. */
const PROXY: v.GenericSchema<unknown, DumpSettings> = settings(
  "hostnameOverride bindAddress healthzBindAddress metricsBindAddress mode detectLocalMode clusterCIDR " +
    "nodePortAddresses configSyncPeriod",
  {
    featureGates: optional(table(flag)),
    iptables: settings("masqueradeBit masqueradeAll localhostNodePorts syncPeriod minSyncPeriod"),
    ipvs: settings(
      "scheduler excludeCIDRs strictARP tcpTimeout tcpFinTimeout udpTimeout syncPeriod minSyncPeriod",
    ),
    nftables: settings("masqueradeBit masqueradeAll syncPeriod minSyncPeriod"),
    detectLocal: settings("bridgeInterface interfaceNamePrefix"),
    conntrack: settings(
      "maxPerCore min tcpEstablishedTimeout tcpCloseWaitTimeout tcpBeLiberal udpTimeout udpStreamTimeout",
    ),
    networkPolicy: settings(
      "enabled mode start deny logPerMinute logGroup cutConnections minSyncPeriod",
    ),
    routing: ROUTING,
  },
).wrapped;

/** kube-relay's own options. */
const RELAY = fields({
  serviceCidrs: list(cidr),
  externalIpRanges: list(cidr),
  addressMode: v.picklist(
    ["auto", "each", "anyip", "none"],
    "has to be auto, each, anyip or none",
  ),
  udpTimeoutMs: number,
  userspaceWorkers: v.union([v.literal("auto"), number], "has to be auto or a number"),
  drainTimeoutMs: number,
  ipvsDrainTimeoutMs: number,
  maxConnectionsPerService: number,
  endpointsFallback: flag,
  serviceCounters: flag,
});

/** Both. */
export const CONFIGURATION = fields({ proxy: PROXY, relay: RELAY });

/** The facts about the machine in a dump, for one IP family. */
export const MACHINE_FACTS = optional(fields({
  features: table(flag),
  beLiberal: optional(flag),
}));
