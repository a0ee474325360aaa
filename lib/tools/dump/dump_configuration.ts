/**
 * The configuration in a dump: every setting that rules depend on, without paths, credentials and
 * the address of the API server.
 */
import {
  cidr,
  fields,
  flag,
  list,
  number,
  objectName,
  optional,
  plainText,
  table,
} from "./dump_value.ts";
import * as v from "valibot";

const syncPeriods = { syncPeriod: number, minSyncPeriod: number };

/** Fields of kube-proxy's configuration, with its names; times are milliseconds. */
const PROXY_FIELDS = fields({
  featureGates: table(flag),
  hostnameOverride: v.union([v.literal(""), objectName], "has to be the name of a node"),
  bindAddress: plainText,
  healthzBindAddress: plainText,
  metricsBindAddress: plainText,
  mode: plainText,
  iptables: fields({
    masqueradeBit: number,
    masqueradeAll: flag,
    localhostNodePorts: flag,
    ...syncPeriods,
  }),
  ipvs: fields({
    scheduler: plainText,
    excludeCIDRs: list(plainText),
    strictARP: flag,
    tcpTimeout: number,
    tcpFinTimeout: number,
    udpTimeout: number,
    ...syncPeriods,
  }),
  nftables: fields({ masqueradeBit: number, masqueradeAll: flag, ...syncPeriods }),
  detectLocalMode: plainText,
  detectLocal: fields({ bridgeInterface: plainText, interfaceNamePrefix: plainText }),
  clusterCIDR: plainText,
  nodePortAddresses: list(plainText),
  conntrack: fields({
    maxPerCore: number,
    min: number,
    tcpEstablishedTimeout: number,
    tcpCloseWaitTimeout: number,
    tcpBeLiberal: flag,
    udpTimeout: number,
    udpStreamTimeout: number,
  }),
  configSyncPeriod: number,
});

/** kube-relay's own options. */
const RELAY_FIELDS = fields({
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
export const CONFIGURATION = fields({ proxy: PROXY_FIELDS, relay: RELAY_FIELDS });

/** The facts about the machine in a dump, for one IP family. */
export const MACHINE_FACTS = optional(fields({
  features: table(flag),
  beLiberal: optional(flag),
  layout: optional(list(plainText)),
}));
