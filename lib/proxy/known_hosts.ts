/**
 * The machines that this node has to reach, and the addresses that no Service may take from them. In a
 * mode that makes Service addresses local, a Service with the address of another machine would cut this
 * node off from that machine, on all ports.
 *
 * @module
 */
import { type Cidr, cidrContains } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { FrontendRole, RefusedFrontend } from "./service_plan.ts";
import type { ServicePortName } from "./service_port_name.ts";

/** A machine that has an address. */
export interface KnownHost {
  /** For messages, e.g. `the API server`. */
  readonly owner: string;
  /** TCP ports that this node itself connects to. */
  readonly ports?: readonly Port[];
  /** Whether it is a Node, which may serve a load balancer address of its own. */
  readonly isNode?: boolean;
}

/** A machine whose address a ServicePort asks for. */
export type AskedHost = { readonly address: IpAddress } & KnownHost;

/** The settings that {@linkcode refusalOf} depends on. */
export interface AddressSettings {
  /** Whether the mode makes Service addresses local. @default {false} */
  readonly bindsAddresses?: boolean;
  /** External IPs outside of these ranges are refused; empty = none is. @default {[]} */
  readonly externalIpRanges?: readonly Cidr[];
  /** Machines that the configuration names. @default {none} */
  readonly configuredHosts?: ReadonlyMap<IpAddress, KnownHost>;
}

/**
 * Returns why no Service may have an external IP or load balancer address on this node; `undefined` = one
 * may. `host`: the machine that is known to have it; `isOwn`: an interface of this node has it.
 */
export function refusalOf(
  { name, role, address, port, protocol }: {
    readonly name: ServicePortName;
    readonly role: FrontendRole;
    readonly address: IpAddress;
    readonly port: Port;
    readonly protocol: Protocol;
  },
  known: KnownHost | undefined,
  isOwn: boolean,
  { bindsAddresses = false, externalIpRanges = [], configuredHosts }: AddressSettings,
): RefusedFrontend | undefined {
  if (role !== "ExternalIP" && role !== "LoadBalancer") return undefined;
  const isOutside = role === "ExternalIP" && externalIpRanges.length > 0 &&
    !externalIpRanges.some((range) => cidrContains(range, address));
  if (isOutside) {
    return { refusal: `${address} is in none of the ranges of --external-ip-ranges` };
  }
  const host = known ?? configuredHosts?.get(address);
  if (host === undefined) return undefined;
  // An address of the node's own interfaces is local already.
  if (bindsAddresses && !isOwn) {
    return {
      refusal: `${address} is an address of ${host.owner}, which this node could no longer reach`,
      // k3s gives a Service of type LoadBalancer the addresses of all its Nodes.
      isUsual: role === "LoadBalancer" && host.isNode === true,
    };
  }
  if (protocol !== "TCP" || !host.ports?.includes(port) || isApiServer(name)) return undefined;
  return {
    refusal:
      `${address} and port ${port} are those of ${host.owner}, to which this node itself connects`,
  };
}

/** The Service of the API server itself may have its address: its endpoints are the API server. */
function isApiServer({ namespace, name }: ServicePortName): boolean {
  return namespace === "default" && name === "kubernetes";
}
