/**
 * Whose a virtual server is. Pure.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import {
  isKubeProxyServer,
  type ServerOwnership,
  type VirtualServer,
} from "../netfilter/foreign/virtual_servers.ts";
import type { NodePortServers } from "./server_record.ts";

/** What tells ours from others. */
export interface OwnServerOwnership extends ServerOwnership {
  /** Where an earlier run served node ports. */
  readonly earlierNodePorts: NodePortServers;
}

/**
 * Whether we, or a kube-proxy before us, made a virtual server. One of a node port is known by an address
 * of the node, or by the record where the node has lost that since. A record alone proves nothing, as it
 * may be older than what the kernel holds: the sets have to have the port as well.
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
