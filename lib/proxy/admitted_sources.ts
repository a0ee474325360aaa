import type { Cidr } from "../net/cidr.ts";
import { CidrCover } from "../net/cidr_cover.ts";
import { type IpAddress, isLoopback } from "../net/ip_address.ts";

/** The sources that a frontend with `loadBalancerSourceRanges` admits. */
export interface AdmittedSources {
  /** As the Service has them. Empty if none is valid for the IP family. */
  readonly ranges: readonly Cidr[];
  readonly cover: CidrCover;
  /**
   * The load balancer addresses if the ranges admit the node, else none: packets of the node have
   * such an address as their source where it is bound to the node.
   */
  readonly own: readonly IpAddress[];
}

/** The sources that the load balancer addresses of a plan admit; `undefined` = all. */
export function admittedSources(
  { admitsNode, loadBalancerVips, sourceRanges }: {
    readonly admitsNode?: true;
    readonly loadBalancerVips: readonly IpAddress[];
    readonly sourceRanges?: readonly Cidr[];
  },
): AdmittedSources | undefined {
  if (sourceRanges === undefined) return undefined;
  return {
    ranges: sourceRanges,
    cover: coverOf(sourceRanges),
    own: admitsNode ? loadBalancerVips : [],
  };
}

/** Whether a source is admitted. */
export function isAdmitted({ cover, own }: AdmittedSources, source: IpAddress): boolean {
  return own.includes(source) || cover.contains(source);
}

/** Whether ranges contain one of the addresses that represent the node. */
export function admitsNode(ranges: readonly Cidr[], nodeIps: readonly IpAddress[]): boolean {
  return nodeIps.some((nodeIp) => coverOf(ranges).contains(nodeIp));
}

/** The addresses that represent the node in source ranges: its node IP, or its interfaces' without one. */
export function nodeIpsOf(
  { interfaceAddresses, nodeIp }: {
    readonly interfaceAddresses: readonly IpAddress[];
    readonly nodeIp?: IpAddress;
  },
): readonly IpAddress[] {
  return nodeIp === undefined ? interfaceAddresses.filter((own) => !isLoopback(own)) : [nodeIp];
}

const covers = new WeakMap<readonly Cidr[], CidrCover>();

/** The source ranges of a Service keep their identity while its endpoints change. */
function coverOf(ranges: readonly Cidr[]): CidrCover {
  const cover = covers.get(ranges) ?? new CidrCover(ranges);
  covers.set(ranges, cover);
  return cover;
}
