import { cidrContains } from "../../lib/net/cidr.ts";
import {
  isKubeProxyServer,
  type ServerOwnership,
  type VirtualServer,
} from "../netfilter/foreign/virtual_servers.ts";
import type { NodePortServers } from "./server_record.ts";

/** The facts that identify virtual servers of this mode. */
export interface OwnServerOwnership extends ServerOwnership {
  /** Node ports and addresses that an earlier run served. */
  readonly earlierNodePorts: NodePortServers;
}

/**
 * Whether this mode, or a kube-proxy before it, created a virtual server. A server of a node port
 * is identified by an address of the node, or by the record if the node has lost the address. A
 * record alone is not enough, as it may be outdated: the sets must contain the port as well.
 */
export function isOwnServer(
  server: VirtualServer,
  ownership: OwnServerOwnership,
): boolean {
  if (isKubeProxyServer(server, ownership)) return true;
  const { excludeCidrs, noted, earlierNodePorts: { addresses, ports } } = ownership;
  const { protocol, address, port } = server;
  const name = `${protocol} ${port}`;
  return addresses.has(address) && ports.has(name) && noted.nodePorts.has(name) &&
    !excludeCidrs.some((cidr) => cidrContains(cidr, address));
}
