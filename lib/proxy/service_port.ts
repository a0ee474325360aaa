/**
 * One family's view of a port of a Service.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { ServicePortKey, ServicePortName } from "./service_port_name.ts";

/** Where traffic may go: anywhere in the cluster, or to endpoints on this node only. */
export type TrafficPolicy = "Cluster" | "Local";

/** One port of a Service, as one IP family sees it. Values are parsed; absent ones are `undefined`. */
export interface ServicePort {
  readonly key: ServicePortKey;
  readonly name: ServicePortName;
  readonly clusterIp: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  readonly nodePort?: Port;
  readonly externalIps: readonly IpAddress[];
  /** Addresses of `status.loadBalancer.ingress` whose ipMode is unset or VIP. */
  readonly loadBalancerVips: readonly IpAddress[];
  /**
   * Sources that may use the load balancer addresses; `undefined` = all. An empty list admits
   * nobody: ranges were given but none is valid for this family (upstream fails open here).
   */
  readonly loadBalancerSourceRanges?: readonly Cidr[];
  /** Seconds for which a client stays with its endpoint; `undefined` = no session affinity. */
  readonly affinityTimeoutSeconds?: number;
  readonly internalTrafficPolicy: TrafficPolicy;
  readonly externalTrafficPolicy: TrafficPolicy;
  /** Port of the health check for load balancers; only type LoadBalancer with external policy Local. */
  readonly healthCheckNodePort?: Port;
  /** Whether a node port, an external IP or a load balancer address leads here. */
  readonly externallyAccessible: boolean;
}
