import type { Service } from "../api/kinds/service.ts";
import { type Cidr, cidrFamilyOf, prefixLengthOf, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import type { ProblemCollector } from "../api/problem_collector.ts";

/** A Service while it is read. */
export interface ServiceReading {
  readonly service: Service;
  readonly family: IpFamily;
  readonly problems: ProblemCollector;
}

/** Shared, so that ten thousand Services without external addresses hold one empty list. */
const NO_ADDRESSES: readonly IpAddress[] = [];

/**
 * The cluster IP of the family, if the Service has one.
 *
 * The API server keeps `clusterIP` equal to `clusterIPs[0]` and fills in `ipFamilies`. A manifest
 * written by hand may set only one of the fields, so each replaces a missing other one.
 */
export function clusterIpOf(
  { service: { spec }, family, problems }: ServiceReading,
): IpAddress | undefined {
  if (!spec.clusterIP && !spec.clusterIPs?.length) return undefined;
  const texts = spec.clusterIPs?.length ? spec.clusterIPs : [spec.clusterIP ?? ""];
  const path = spec.clusterIPs?.length ? "spec.clusterIPs" : "spec.clusterIP";
  const named = spec.ipFamilies?.length ? spec.ipFamilies.indexOf(family) : undefined;
  for (const [index, text] of texts.entries()) {
    if (text === "" || text === "None" || (named !== undefined && named !== index)) continue;
    const address = tryParseIpAddress(text);
    if (address === undefined) {
      problems.report(path, text, "The cluster IP is not served: it has to be an IP address");
    } else if (ipFamilyOf(address) === family) {
      return address;
    } else if (named !== undefined) {
      problems.report(
        path,
        text,
        "The cluster IP is not served: it must match spec.ipFamilies at the same index",
      );
    }
  }
  return undefined;
}

/** `spec.externalIPs`, without duplicates. Blank entries are ignored silently, as in upstream. */
export function externalIpsOf(reading: ServiceReading): readonly IpAddress[] {
  const { externalIPs = [] } = reading.service.spec;
  if (externalIPs.length === 0) return NO_ADDRESSES;
  const candidates = externalIPs
    .map((text, index) => ({ text, path: `spec.externalIPs[${index}]` }))
    .filter(({ text }) => text.trim() !== "");
  return addressesOf(
    reading,
    candidates,
    "The external IP is left out: it has to be an IP address",
  );
}

/** The load balancer addresses that this node may serve itself, without duplicates. */
export function loadBalancerVipsOf(reading: ServiceReading): readonly IpAddress[] {
  const { ingress = [] } = reading.service.status?.loadBalancer ?? {};
  if (ingress.length === 0) return NO_ADDRESSES;
  const candidates = ingress
    .map(({ ip, ipMode = "VIP" }, index) => ({
      text: ip ?? "",
      ipMode,
      path: `status.loadBalancer.ingress[${index}].ip`,
    }))
    // ipMode Proxy: the load balancer rewrites the destination itself; its traffic must not bypass
    // it.
    .filter(({ text, ipMode }) => text !== "" && ipMode === "VIP");
  return addressesOf(
    reading,
    candidates,
    "The load balancer address is left out: it has to be an IP address",
  );
}

function addressesOf(
  { family, problems }: ServiceReading,
  candidates: readonly { readonly text: string; readonly path: string }[],
  message: string,
): readonly IpAddress[] {
  const addresses = new Set<IpAddress>();
  for (const { text, path } of candidates) {
    const address = tryParseIpAddress(text);
    if (address === undefined) problems.report(path, text, message);
    else if (ipFamilyOf(address) === family) addresses.add(address);
  }
  return addresses.size === 0 ? NO_ADDRESSES : [...addresses];
}

/**
 * The sources that may use the load balancer addresses. `undefined` = all (no list, or one with a
 * /0 of this family), empty = none (a list without a valid range of this family). In the latter
 * case upstream admits all.
 */
export function loadBalancerSourceRangesOf(
  { service, family, problems }: ServiceReading,
): readonly Cidr[] | undefined {
  const texts = service.spec.loadBalancerSourceRanges ?? [];
  if (texts.length === 0) return undefined;
  const ranges = new Set<Cidr>();
  for (const [index, text] of texts.entries()) {
    const range = tryParseCidr(text.trim());
    if (range === undefined) {
      problems.report(
        `spec.loadBalancerSourceRanges[${index}]`,
        text,
        "The source range is left out: it has to be an IP address, a slash and a prefix length",
      );
    } else if (cidrFamilyOf(range) === family) ranges.add(range);
  }
  return [...ranges].some((range) => prefixLengthOf(range) === 0) ? undefined : [...ranges];
}
