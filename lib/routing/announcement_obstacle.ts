import { type Cidr, cidrContains } from "../net/cidr.ts";
import { matchesLabels } from "../policy/label_selector.ts";
import { type AddressPool, otherUseOf, poolOf } from "./address_pool.ts";
import type { AnnouncedService, ServiceAddress } from "./announced_service.ts";
import type { RoutingNode } from "./routing_node.ts";
import type { BgpSettings } from "./routing_settings.ts";

interface AddressContext {
  readonly settings: BgpSettings;
  readonly pools: readonly AddressPool[];
  /** The ranges of all pods; empty = those of the Nodes. */
  readonly clusterCidrs: readonly Cidr[];
  /** A node that has the address. */
  readonly nodeAt: string | undefined;
  readonly own: RoutingNode | undefined;
  readonly serviceRanges: readonly Cidr[];
  /** The nodes that are ready in place of the own one; empty if it is ready. */
  readonly replacements: readonly RoutingNode[];
}

/** Returns the reason why BGP does not announce an address of a Service; `undefined` = it may. */
export function announcementObstacle(
  { address, kind, endpointNodes }: ServiceAddress,
  { switches }: Pick<AnnouncedService, "switches">,
  { settings, pools, clusterCidrs, nodeAt, own, serviceRanges, replacements }: AddressContext,
): string | undefined {
  if (switches[kind] === false) return "an annotation of the Service turns it off";
  const isOn = switches[kind] ?? settings.advertise[kind];
  if (!isOn) return `routing.bgp.advertise.${kind} is off`;
  if (nodeAt !== undefined) return `it is the address of node ${nodeAt}`;
  const isExternal = kind === "externalIps";
  if (isExternal && !settings.externalIpRanges.some((each) => cidrContains(each, address))) {
    return "it is outside of routing.bgp.externalIpRanges";
  }
  const pool = kind === "clusterIps" ? undefined : poolOf(pools, address);
  const replacement = replacements.find(({ name, labels }) =>
    (!endpointNodes || endpointNodes.has(name)) &&
    (!pool?.nodeSelector || matchesLabels(pool.nodeSelector, labels)) &&
    settings.peers.some(({ nodeSelector }) => !nodeSelector || matchesLabels(nodeSelector, labels))
  );
  if (replacement) return `the Node is not ready, and ${replacement.name} is`;
  if (kind === "clusterIps") return undefined;
  const podCidrs = [...clusterCidrs, ...own?.podCidrs ?? []];
  const use = otherUseOf(address, { podCidrs, serviceRanges });
  if (use !== undefined) return use;
  if (pool && isExternal) {
    return `it is in pool '${pool.name}', whose addresses are announced only for Services that ` +
      "they are assigned to";
  }
  if (pool && pool.announce !== "bgp") {
    return `pool '${pool.name}' is announced by ${pool.announce}`;
  }
  if (pool?.nodeSelector && !matchesLabels(pool.nodeSelector, own?.labels ?? {})) {
    return `the nodeSelector of pool '${pool.name}' does not match the Node`;
  }
  return undefined;
}
