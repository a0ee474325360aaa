/**
 * Which sources a frontend admits. Every mode and `explain` use this decision.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import { CidrCover } from "../net/cidr_cover.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { ModeDeviations } from "./packet_explanation.ts";
import type { PacketHit } from "./packet_hit.ts";
import type { ServicePlan } from "./service_plan.ts";

/** The sources that a frontend with `loadBalancerSourceRanges` admits. */
export interface AdmittedSources {
  /** As the Service has them. Empty if none is valid for the IP family. */
  readonly ranges: readonly Cidr[];
  readonly cover: CidrCover;
  /**
   * The load balancer addresses if a range contains the node, else none: packets of the node have
   * such an address as their source where it is bound to the node.
   */
  readonly own: readonly IpAddress[];
}

/** The addresses of the node that a mode looks for in the ranges. */
type NodeIps = readonly (IpAddress | undefined)[];

/** Returns the sources that load balancer addresses with these ranges admit. */
export function admittedSources(
  ranges: readonly Cidr[],
  { loadBalancerVips }: Pick<ServicePlan, "loadBalancerVips">,
  nodeIps: NodeIps,
): AdmittedSources {
  const cover = coverOf(ranges);
  const admitsNode = nodeIps.some((nodeIp) => nodeIp !== undefined && cover.contains(nodeIp));
  return { ranges, cover, own: admitsNode ? loadBalancerVips : [] };
}

/** Whether a frontend admits a source; nothing without source ranges. */
export function admission(
  { role, service }: Pick<PacketHit, "role" | "service">,
  { source, nodeIps }: { readonly source: IpAddress; readonly nodeIps: NodeIps },
): Pick<ModeDeviations, "admitted"> {
  if (role !== "LoadBalancer" || service.sourceRanges === undefined) return {};
  const { cover, own } = admittedSources(service.sourceRanges, service, nodeIps);
  return { admitted: own.includes(source) || cover.contains(source) };
}

const covers = new WeakMap<readonly Cidr[], CidrCover>();

/** The source ranges of a Service keep their identity while its endpoints change. */
function coverOf(ranges: readonly Cidr[]): CidrCover {
  const cover = covers.get(ranges) ?? new CidrCover(ranges);
  covers.set(ranges, cover);
  return cover;
}
