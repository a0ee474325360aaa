/**
 * What has to hold for one ServicePort, whatever the backend. No word of iptables in it.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { Endpoint } from "./endpoint.ts";
import type { ServicePortKey, ServicePortName } from "./service_port_name.ts";
import type { Verdict } from "./verdict.ts";

/** The decision for one ServicePort. Deeply read-only; keeps its identity while nothing changed. */
export interface ServicePlan {
  readonly key: ServicePortKey;
  readonly name: ServicePortName;
  readonly protocol: Protocol;
  readonly clusterIp: IpAddress;
  readonly port: Port;
  readonly nodePort?: Port;
  readonly externalIps: readonly IpAddress[];
  readonly loadBalancerVips: readonly IpAddress[];
  /** For {@linkcode loadBalancerVips} only; `undefined` = everybody, empty = nobody. */
  readonly sourceRanges?: readonly Cidr[];
  /** Traffic to the cluster IP. */
  readonly internal: Verdict;
  /** Traffic to node port, external IPs and load balancer addresses, from outside. */
  readonly external: Verdict;
  /** The same from a pod of this cluster or from the node itself: policy Local does not bind it. */
  readonly externalFromCluster: Verdict;
  readonly affinityTimeoutSeconds?: number;
  /** Which traffic to the cluster IP leaves with the node's address. */
  readonly masqueradeInternal: "all" | "off-cluster" | "none";
  /** Which traffic to the external addresses does: all of it, or only what comes from the node itself. */
  readonly masqueradeExternal: "all" | "from-node";
  /** Every endpoint that some verdict may pick, without duplicates, sorted by key. */
  readonly reachable: readonly Endpoint[];
  /** Every endpoint known, for `status` and `explain`. */
  readonly endpoints: readonly Endpoint[];
  readonly healthCheckNodePort?: Port;
}
