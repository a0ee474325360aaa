/**
 * Completes Services of manifests: sets the defaults of an API server, and refuses what it would
 * refuse beyond single fields.
 *
 * @module
 */
import { type IpFamily, ipFamilyOf, parseIpAddress } from "../../net/ip_address.ts";
import type { ManifestReport } from "../kind.ts";
import type { ServiceManifest } from "./service.ts";

type Spec = ServiceManifest["spec"];
type Ports = NonNullable<Spec["ports"]>;

/** Seconds for which a client keeps its endpoint by default: three hours. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

/** Checks rules across fields and fills in the defaults. */
export function completeService(
  { metadata, spec, status }: ServiceManifest,
  report: ManifestReport,
): ServiceManifest {
  const type = spec.type ?? "ClusterIP";
  const addresses = clusterAddresses(spec, report);
  const isServed = type !== "ExternalName" && addresses[0] !== "None";
  const ports = spec.ports ?? [];
  if (isServed) {
    checkAddresses(addresses, spec, report);
    if (ports.length === 0) {
      report.error({ path: ["spec", "ports"], message: "has to hold at least one port" });
    }
  }
  checkPorts(ports, report);
  checkNodePorts(ports, type, report);
  const isExternal = type === "NodePort" || type === "LoadBalancer" ||
    (type === "ClusterIP" && (spec.externalIPs ?? []).length > 0);
  return {
    metadata,
    spec: {
      ...spec,
      type,
      ...addressFields(addresses),
      ports: ports.map(({ nodePort, protocol, ...port }) => ({
        ...port,
        protocol: protocol ?? "TCP",
        nodePort: nodePort || undefined,
      })),
      externalIPs: spec.externalIPs?.length ? spec.externalIPs : undefined,
      externalTrafficPolicy: spec.externalTrafficPolicy ?? (isExternal ? "Cluster" : undefined),
      internalTrafficPolicy: spec.internalTrafficPolicy ??
        (type === "ExternalName" ? undefined : "Cluster"),
      healthCheckNodePort: spec.healthCheckNodePort || undefined,
      ...affinityFields(spec),
    },
    status: statusWithDefaults(status),
  };
}

/** `clusterIPs`, or the one of `clusterIP`. Two fields that contradict each other are an error. */
function clusterAddresses(
  { clusterIP, clusterIPs }: Spec,
  report: ManifestReport,
): readonly string[] {
  if (!clusterIPs?.length) return clusterIP ? [clusterIP] : [];
  if (clusterIP && clusterIP !== clusterIPs[0]) {
    const message = `has to be the same as spec.clusterIPs[0], which is ${clusterIPs[0]}`;
    report.error({ path: ["spec", "clusterIP"], value: clusterIP, message });
  }
  return clusterIPs;
}

function checkAddresses(addresses: readonly string[], spec: Spec, report: ManifestReport): void {
  if (addresses.length === 0) {
    const message = "is missing: without an API server none is assigned; give an address, or None";
    return report.error({ path: ["spec", "clusterIP"], message });
  }
  const families = addresses.map(familyOf);
  if (addresses.length > 2 || families.includes(undefined) || families[0] === families[1]) {
    const message = "has to hold one address, or one of each IP family";
    return report.error({ path: ["spec", "clusterIPs"], value: addresses, message });
  }
  for (const [index, family] of (spec.ipFamilies ?? []).entries()) {
    const path = ["spec", "ipFamilies", index];
    if (index >= families.length) {
      const message = `has no address in spec.clusterIPs: the Service is not served by ${family}`;
      report.warn({ path, value: family, message });
    } else if (family !== families[index]) {
      const message = `has to be the family of ${addresses[index]}, the address at the same place`;
      report.error({ path, value: family, message });
    }
  }
}

/** `undefined` for "None", which stands alone or not at all. */
function familyOf(address: string): IpFamily | undefined {
  return address === "None" ? undefined : ipFamilyOf(parseIpAddress(address));
}

function checkPorts(ports: Ports, report: ManifestReport): void {
  const seenNames = new Set<string>();
  const seenPorts = new Set<string>();
  for (const [index, { name, protocol, port }] of ports.entries()) {
    const path = ["spec", "ports", index];
    if (!name && ports.length > 1) {
      report.error({
        path: [...path, "name"],
        message: "is missing: of several ports each has one",
      });
    } else if (name && seenNames.has(name)) {
      const message = "is the name of an earlier port too: each port needs its own";
      report.error({ path: [...path, "name"], value: name, message });
    }
    seenNames.add(name ?? "");
    const number = `${protocol ?? "TCP"} ${port}`;
    if (seenPorts.has(number)) {
      const message = `is the number of an earlier port too, with protocol ${protocol ?? "TCP"}`;
      report.error({ path: [...path, "port"], value: port, message });
    }
    seenPorts.add(number);
  }
}

function checkNodePorts(ports: Ports, type: string, report: ManifestReport): void {
  const hasNodePorts = type === "NodePort" || type === "LoadBalancer";
  const seen = new Set<string>();
  for (const [index, { protocol, nodePort }] of ports.entries()) {
    const path = ["spec", "ports", index, "nodePort"];
    if (!nodePort) {
      if (type !== "NodePort") continue;
      const message = "is missing: without an API server none is assigned";
      report.warn({ path, message });
      continue;
    }
    const number = `${protocol ?? "TCP"} ${nodePort}`;
    if (!hasNodePorts) {
      const message = `needs spec.type NodePort or LoadBalancer; it is ${type}`;
      report.error({ path, value: nodePort, message });
    } else if (seen.has(number)) {
      const message = `is the number of an earlier port too, with protocol ${protocol ?? "TCP"}`;
      report.error({ path, value: nodePort, message });
    }
    seen.add(number);
  }
}

function addressFields(addresses: readonly string[]): Partial<Spec> {
  const [clusterIP] = addresses;
  if (clusterIP === undefined) return { clusterIP, clusterIPs: undefined, ipFamilies: undefined };
  const ipFamilies = addresses.map(familyOf).filter((family) => family !== undefined);
  return { clusterIP, clusterIPs: [...addresses], ipFamilies };
}

function affinityFields({ sessionAffinity, sessionAffinityConfig }: Spec): Partial<Spec> {
  if (sessionAffinity !== "ClientIP") {
    return { sessionAffinity: "None", sessionAffinityConfig: undefined };
  }
  const timeoutSeconds = sessionAffinityConfig?.clientIP?.timeoutSeconds;
  return {
    sessionAffinity,
    sessionAffinityConfig: {
      clientIP: { timeoutSeconds: timeoutSeconds ?? DEFAULT_AFFINITY_SECONDS },
    },
  };
}

function statusWithDefaults(status: ServiceManifest["status"]): ServiceManifest["status"] {
  const ingress = status?.loadBalancer?.ingress;
  if (!ingress?.length) return undefined;
  const withMode = ingress.map(({ ip, ipMode }) => ({
    ip,
    ipMode: ipMode ?? (ip ? "VIP" : undefined),
  }));
  return { loadBalancer: { ingress: withMode } };
}
