/**
 * Decides by the node's routes which addresses must not become local. A local address can no
 * longer be reached elsewhere, so adding another machine's address, or a range that contains one,
 * cuts the node off from it.
 *
 * @module
 */
import { type Cidr, cidrContains, hostCidr, prefixLengthOf } from "../../../lib/net/cidr.ts";
import { type IpAddress, isLoopback, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Route } from "../../iproute/ip_runner.ts";

/**
 * Returns the directly attached network that contains the address: any machine there may have it,
 * such as other nodes, whose addresses k3s' ServiceLB uses for load balancers. If it were added to
 * `lo`, the node would also answer ARP for it. Undefined if there is none.
 */
function onLinkRouteTo(address: IpAddress, routes: readonly Route[]): Route | undefined {
  return routes.find(({ destination, device, gateways }) =>
    destination !== undefined && device !== undefined && device !== "lo" &&
    gateways.length === 0 && cidrContains(destination, address)
  );
}

/**
 * Returns the reason why an external or load balancer address must not be added; undefined if it
 * may.
 */
export function addressConflict(address: IpAddress, routes: readonly Route[]): string | undefined {
  const onLink = onLinkRouteTo(address, routes);
  if (onLink !== undefined) {
    return `it lies in the node's own network ${onLink.destination} on ${onLink.device}, where ` +
      `another machine may have it; add it to an interface of this node to serve it here`;
  }
  return routes.some(({ gateways }) => gateways.includes(address))
    ? "it is a gateway that this node sends packets through"
    : undefined;
}

/**
 * Returns the reason why a local route for a range would capture addresses of other hosts;
 * undefined if it would not.
 */
export function rangeConflict(
  range: Cidr,
  { routes, nodeAddresses }: {
    readonly routes: readonly Route[];
    readonly nodeAddresses: readonly IpAddress[];
  },
): string | undefined {
  // IPv6 has a route in the main table for each address of the node, those of `lo` included. Such an
  // address, without a network of neighbours, is what NodeLocal DNSCache takes from the range.
  const toItself = new Set(nodeAddresses.map(hostCidr));
  const abroad = routes.filter(({ destination, device }) =>
    device !== "lo" && (destination === undefined || !toItself.has(destination))
  );
  const own = nodeAddresses.find((address) =>
    !isLoopback(address) && cidrContains(range, address) &&
    onLinkRouteTo(address, abroad) !== undefined
  );
  if (own !== undefined) return `the node's own network, with its address ${own}, is in it`;
  for (const { destination, gateways } of abroad) {
    const gateway = gateways.find((address) => cidrContains(range, address));
    if (gateway !== undefined) return `the gateway ${gateway} lies in it`;
    if (destination !== undefined && isStrictlyInside(destination, range)) {
      return `the node has a route to ${destination}, which lies in it`;
    }
  }
  return undefined;
}

function isStrictlyInside(inner: Cidr, outer: Cidr): boolean {
  const network = tryParseIpAddress(inner.slice(0, inner.indexOf("/")));
  return network !== undefined && prefixLengthOf(inner) > prefixLengthOf(outer) &&
    cidrContains(outer, network);
}
