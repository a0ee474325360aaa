import type { IpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Port, type Protocol } from "../../lib/net/port.ts";
import { frontendsOf, nodePortAddressesOf } from "../../lib/proxy/frontend.ts";
import type { FrontendRole, ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";

/** `address:port/PROTOCOL`, brackets around IPv6: the unique key of a socket on this machine. */
export type SocketKey = string & { readonly __brand: "SocketKey" };

/** One address of a ServicePort. */
export interface ServiceAddress {
  readonly role: FrontendRole;
  readonly socket: SocketKey;
  readonly address: IpAddress;
  readonly port: Port;
  /** The verdicts of the plan that apply: `internal`, or the external ones. */
  readonly traffic: "internal" | "external";
  /**
   * Whether some client is forwarded. If not, no socket is opened and the kernel refuses: RST for
   * TCP, ICMP port unreachable for UDP. A silent drop is impossible without netfilter; refusing is
   * the nearest.
   */
  readonly open: boolean;
  /** The server names that lead here; `undefined` = the address is not shared by them. */
  readonly names?: readonly string[];
}

/**
 * Every address that a ServicePort owns.
 *
 * Node ports are one address for each node address, never 0.0.0.0 or `::`. Deno's `::` is dual-stack
 * and so collides with the IPv4 one; and a wildcard socket would serve the node port on every
 * Service address as well, since those are local to this machine.
 */
export function serviceAddresses(plan: ServicePlan, shared: SharedPlan): readonly ServiceAddress[] {
  const { protocol } = plan;
  return frontendsOf(plan).flatMap(({ role, address, port, verdict, names }) => {
    const rest = {
      role,
      port,
      traffic: role === "ClusterIP" ? "internal" as const : "external" as const,
      open: verdict.internal.kind === "forward" || verdict.external.kind === "forward",
      ...(names && { names }),
    };
    const addresses = address === undefined
      ? nodePortAddressesOf(plan, shared.nodePortAddresses)
      : [address];
    return addresses.map((address): ServiceAddress => ({
      ...rest,
      address,
      socket: socketKey(address, port, protocol),
    }));
  });
}

/** The key of a socket. */
export function socketKey(address: IpAddress, port: Port, protocol: Protocol): SocketKey {
  return `${formatHostPort(address, port)}/${protocol}` as SocketKey;
}
