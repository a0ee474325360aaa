/**
 * The ipsets of the ipvs mode: kube-proxy's, which other software knows, and additional ones.
 * Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { createOptions, MAX_SET_NAME_LENGTH, type SetType } from "../netfilter/ipset/ipset_text.ts";

/** Type and comment of rules that use it, for either IP family, by the name after `KUBE-`. */
export const IP_SETS = {
  "LOOP-BACK": [
    "hash:ip,port,ip",
    "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
  ],
  "CLUSTER-IP": ["hash:ip,port", "Kubernetes service cluster ip + port for masquerade purpose"],
  "EXTERNAL-IP": [
    "hash:ip,port",
    "Kubernetes service external ip + port for masquerade and filter purpose",
  ],
  "EXTERNAL-IP-LOCAL": [
    "hash:ip,port",
    "Kubernetes service external ip + port with externalTrafficPolicy=local",
  ],
  "LOAD-BALANCER": ["hash:ip,port", "Kubernetes service lb portal"],
  "LOAD-BALANCER-LOCAL": [
    "hash:ip,port",
    "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
  ],
  "LOAD-BALANCER-SOURCE-CIDR": [
    "hash:ip,port,net",
    "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
  ],
  "LOAD-BALANCER-SOURCE-IP": [
    "hash:ip,port,ip",
    "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
  ],
  "LOAD-BALANCER-FW": [
    "hash:ip,port",
    "Kubernetes service load balancer ip + port for load balancer with sourceRange",
  ],
  "NODE-PORT-TCP": ["bitmap:port", "Kubernetes nodeport TCP port for masquerade purpose"],
  "NODE-PORT-LOCAL-TCP": [
    "bitmap:port",
    "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
  ],
  "NODE-PORT-UDP": ["bitmap:port", "Kubernetes nodeport UDP port for masquerade purpose"],
  "NODE-PORT-LOCAL-UDP": [
    "bitmap:port",
    "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
  ],
  "NODE-PORT-SCTP-HASH": [
    "hash:ip,port",
    "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'",
  ],
  "NODE-PORT-LOCAL-SCTP-HASH": [
    "hash:ip,port",
    "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
  ],
  "HEALTH-CHECK-NODE-PORT": ["bitmap:port", "Kubernetes health check node port"],

  /** Exactly the addresses that are bound. */
  "IPVS-IPS": ["hash:ip", "Kubernetes service addresses of this node"],

  /**
   * Every served address and port except node ports. Added last and removed first: without the
   * virtual server, a packet would reach the node's own service on that port.
   */
  SERVED: ["hash:ip,port", "Kubernetes service ip + port with a virtual server"],

  /** Cluster IPs of internal policy Local without a local endpoint. */
  "NO-LOCAL-INTERNAL": [
    "hash:ip,port",
    "Kubernetes service cluster ip + port without local endpoints",
  ],

  /** The same of external addresses. Pods and the node itself are not bound by it. */
  "NO-LOCAL-EXTERNAL": [
    "hash:ip,port",
    "Kubernetes service external ip + port without local endpoints",
  ],

  /** Addresses with direct server return: pods of this node may reply from them. */
  DSR: ["hash:ip", "Kubernetes service ip with direct server return"],

  /**
   * Addresses of the node that serve node ports. No rule refers to it: it proves that the virtual
   * servers of an address that the node has lost are kube-relay's.
   */
  "NODE-PORT-IPS": ["hash:ip", "Kubernetes addresses of node ports"],
} as const satisfies Readonly<Record<string, readonly [type: SetType, comment: string]>>;

/** One of {@linkcode IP_SETS}. */
export type SetId = keyof typeof IP_SETS;

/** Every set, in the order in which entries are added: admitting sets before refusing ones. */
export const SET_IDS: readonly SetId[] = Object.keys(IP_SETS).filter((id): id is SetId =>
  id in IP_SETS
);

/** A bound against mistakes. kube-proxy has 65,536, which 22,000 Services with three addresses exceed. */
const MAX_ENTRIES = 1_048_576;

const NAMES = {
  IPv4: namesWith("KUBE-"),
  IPv6: namesWith("KUBE-6-"),
} as const satisfies Readonly<Record<IpFamily, ReadonlyMap<SetId, string>>>;

function namesWith(prefix: string): ReadonlyMap<SetId, string> {
  return new Map(SET_IDS.map((id) => [id, `${prefix}${id}`.slice(0, MAX_SET_NAME_LENGTH)]));
}

/** The name of a set of an IP family, as kube-proxy cuts it. */
export function setName(id: SetId, family: IpFamily): string {
  return NAMES[family].get(id)!;
}

/** Type and options of a set, as `ipset create` takes them. */
export function setOptions(id: SetId, family: IpFamily): string {
  return createOptions(IP_SETS[id][0], { family, maxEntries: MAX_ENTRIES });
}
