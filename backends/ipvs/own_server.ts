import { cidrContains } from "../../lib/net/cidr.ts";
import {
  isKubeProxyServer,
  type ServerOwnership,
  type VirtualServer,
} from "../netfilter/foreign/virtual_servers.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";

/** The facts that identify virtual servers of this mode. */
export interface OwnServerOwnership extends ServerOwnership {
  /** Addresses of node ports by the set of this mode. */
  readonly nodePortAddresses: ReadonlySet<IpAddress>;
}

/**
 * Whether this mode, or a kube-proxy before it, created a virtual server. A server of a node port
 * is identified by an address of the node, or by the set of addresses if the node has lost it.
 */
export function isOwnServer(
  server: VirtualServer,
  ownership: OwnServerOwnership,
): boolean {
  if (isKubeProxyServer(server, ownership)) return true;
  const { excludeCidrs, noted, nodePortAddresses } = ownership;
  const { protocol, address, port } = server;
  return nodePortAddresses.has(address) && noted.nodePorts.has(`${protocol} ${port}`) &&
    !excludeCidrs.some((cidr) => cidrContains(cidr, address));
}
