/**
 * The elements that belong to no Service. Pure.
 *
 * @module
 */
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import { isLoopback } from "../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import { SOURCE_RANGES_CHAIN } from "./base_chains.ts";
import { chainElement, DROP, REJECT_CHAIN } from "./chain_spec.ts";
import type { Element } from "./containers.ts";
import { rangeText } from "./entry.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/**
 * Where numbers of fixed chains lead, the ranges of Services, and the addresses of node ports where these are not all of the node's.
 * Loopback is left out unless it was asked for; ::1 always, as IPv6 has no route_localnet.
 */
export function sharedElements(
  { nodePortAddresses, serviceCidrs }: SharedPlan,
  options: NftablesRenderOptions,
): readonly Element[] {
  const { family, localhostNodePorts } = options;
  const allowsLoopback = family === "IPv4" && localhostNodePorts;
  const addresses = options.nodePortAddresses.kind === "all" ? [] : nodePortAddresses;
  return [
    ...[DROP, REJECT_CHAIN, SOURCE_RANGES_CHAIN].map(chainElement),
    ...new CidrCover(serviceCidrs).outermost.map((cidr): Element => ({
      container: "service-cidrs",
      key: rangeText(cidr),
    })),
    ...addresses.filter((address) => allowsLoopback || !isLoopback(address))
      .map((key): Element => ({ container: "node-port-ips", key })),
  ];
}
