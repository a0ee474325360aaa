/**
 * Finds settings that are valid alone but contradict each other or this node. Pure.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { tryParseListenAddress } from "../../config/listen_address.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import {
  type IpFamily,
  ipFamilyOf,
  isUnspecified,
  tryParseIpAddress,
} from "../../net/ip_address.ts";
import { type BackendMode, MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";

/** The facts that the configuration is checked against. */
export interface SanityContext {
  readonly mode: BackendMode;
  /** The families that run. */
  readonly families: readonly IpFamily[];
  /** The first family of the node. */
  readonly primary: IpFamily;
  /** Ranges of the Node object; only mode NodeCIDR uses them. */
  readonly podCidrs: readonly Cidr[];
}

/** A contradiction. */
interface SanityFinding {
  /** `fatal`: every rule would be wrong, so kube-relay exits, as kube-proxy does. */
  readonly severity: "fatal" | "warning";
  /** The field. */
  readonly field: string;
  /** One sentence without a full stop, with the fault and the remedy. */
  readonly problem: string;
}

/** Returns all contradictions; fatal ones first. */
export function checkSanity(
  proxy: KubeProxyConfiguration,
  context: SanityContext,
): readonly SanityFinding[] {
  return [
    ...checkLocalRanges(proxy, context),
    ...checkNodePorts(proxy, context),
    ...checkSingleStack(proxy, context),
  ];
}

function checkLocalRanges(
  { detectLocalMode, clusterCIDR }: KubeProxyConfiguration,
  { families, primary, podCidrs }: SanityContext,
): readonly SanityFinding[] {
  const missing = (field: string, cidrs: readonly Cidr[]): readonly SanityFinding[] =>
    cidrs.length === 0 || cidrs.some((cidr) => cidrFamilyOf(cidr) === primary) ? [] : [{
      severity: "fatal",
      field,
      problem: `${cidrs.join(",")} has no ${primary} range, but ${primary} is the node's family: ` +
        `no pod could be recognized; give a range of ${primary}`,
    }];
  if (detectLocalMode === "NodeCIDR") return missing("spec.podCIDRs of the Node", podCidrs);
  const isClusterCidr = detectLocalMode === "" || detectLocalMode === "ClusterCIDR";
  return isClusterCidr && families.length === 1
    ? missing("clusterCIDR", cidrsOf(clusterCIDR.split(",")))
    : [];
}

function checkNodePorts(
  proxy: KubeProxyConfiguration,
  { mode, primary, podCidrs }: SanityContext,
): readonly SanityFinding[] {
  const entries = nodePortEntries(proxy.nodePortAddresses, mode);
  const warn = (problem: string): SanityFinding => ({
    severity: "warning",
    field: "nodePortAddresses",
    problem,
  });
  if (entries.length === 0) {
    // In userspace mode this is the documented default, and `ss` shows its sockets.
    return MODE_TRAITS[mode].forwardsItself
      ? []
      : [warn("it is not set, so node ports are open on every address; 'primary' would be safer")];
  }
  const cidrs = cidrsOf(entries);
  // A keyword stands for both families.
  if (cidrs.length < entries.length) return [];
  if (!hasFamily(cidrs, primary)) {
    return [
      warn(
        `it has no ${primary} range, but ${primary} is the node's family: node ports of ` +
          `${primary} are open on every address`,
      ),
    ];
  }
  const others = [...cidrsOf(proxy.clusterCIDR.split(",")), ...cidrs, ...podCidrs]
    .concat(cidrsOf(proxy.ipvs.excludeCIDRs));
  if (isDual(cidrs) || !isDual(others)) return [];
  const other = primary === "IPv4" ? "IPv6" : "IPv4";
  return [warn(
    `other fields name both IP families, this one only ${primary}: node ports of ` +
      `${other} are open on every address`,
  )];
}

function checkSingleStack(
  proxy: KubeProxyConfiguration,
  { families }: SanityContext,
): readonly SanityFinding[] {
  const [only] = families;
  if (only === undefined || families.length > 1) return [];
  const findings: SanityFinding[] = [];
  const excluded = cidrsOf(proxy.ipvs.excludeCIDRs);
  if (excluded.length > 0 && !hasFamily(excluded, only)) {
    findings.push({
      severity: "warning",
      field: "ipvs.excludeCIDRs",
      problem: `it has no ${only} range, but only ${only} runs here: it has no effect`,
    });
  }
  for (const field of ["healthzBindAddress", "metricsBindAddress"] as const) {
    const { hostname } = tryParseListenAddress(proxy[field], 1) ?? {};
    const address = hostname === undefined ? undefined : tryParseIpAddress(hostname);
    if (address === undefined || isUnspecified(address) || ipFamilyOf(address) === only) continue;
    findings.push({
      severity: "warning",
      field,
      problem: `${proxy[field]} is not ${only}, but only ${only} runs here: it may not be bound`,
    });
  }
  return findings;
}

function cidrsOf(texts: readonly string[]): readonly Cidr[] {
  return texts.flatMap((text) => tryParseCidr(text.trim()) ?? []);
}

function hasFamily(cidrs: readonly Cidr[], family: IpFamily): boolean {
  return cidrs.some((cidr) => cidrFamilyOf(cidr) === family);
}

function isDual(cidrs: readonly Cidr[]): boolean {
  return hasFamily(cidrs, "IPv4") && hasFamily(cidrs, "IPv6");
}
