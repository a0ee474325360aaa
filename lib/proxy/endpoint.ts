/**
 * Endpoints of a ServicePort.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";

/** `ip:port`, brackets around IPv6: the identity of an endpoint inside a ServicePort. */
export type EndpointKey = string & { readonly __brand: "EndpointKey" };

/** One address and port behind a ServicePort. */
export interface Endpoint {
  readonly key: EndpointKey;
  readonly address: IpAddress;
  readonly port: Port;
  /** Whether it runs on this node. */
  readonly isLocal: boolean;
  readonly nodeName?: string;
  /** Unset conditions count as ready, serving and not terminating. */
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** Zones for which it is hinted; `undefined` = no hint. */
  readonly zoneHints?: readonly string[];
  /** Nodes for which it is hinted; `undefined` = no hint. */
  readonly nodeHints?: readonly string[];
}
