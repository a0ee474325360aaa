import * as v from "valibot";
import { type IpFamily, ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL } from "../labels.ts";
import {
  at,
  cidr,
  dnsLabel,
  fields,
  ip,
  isServableAddress,
  list,
  listAt,
  metadata,
  objectAt,
  oneOf,
  pointerAt,
  portName,
  portNumber,
  protocol,
  text,
  UID,
  wholeNumber,
} from "../schema.ts";
import { KUBE_ROUTER_ANNOTATIONS } from "../kube_router_annotations.ts";
import { MODE_ANNOTATIONS } from "../service_annotations.ts";

const clusterIp = v.pipe(
  text,
  v.check(
    (input) => input === "None" || isServableAddress(tryParseIpAddress(input)),
    "has to be None, or an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  ),
);

const trafficPolicy = v.nullish(oneOf("Cluster", "Local"));

const affinitySeconds = wholeNumber(
  1,
  86_400,
  "has to be a whole number of seconds between 1 and 86400 (one day)",
);

const schema = fields({
  metadata: metadata(dnsLabel, {
    labels: [HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL],
    annotations: [...MODE_ANNOTATIONS, ...KUBE_ROUTER_ANNOTATIONS],
  }, UID),
  spec: at(
    2,
    fields(
      {
        type: at(4, v.nullish(oneOf("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))),
        clusterIP: at(3, v.nullish(clusterIp)),
        clusterIPs: at(18, list(clusterIp)),
        ipFamilies: at(19, list(oneOf("IPv4", "IPv6"))),
        ports: listAt(1, {
          name: at(1, v.nullish(portName)),
          protocol: at(2, v.nullish(protocol)),
          port: at(3, portNumber(1)),
          nodePort: at(5, v.nullish(portNumber(0))),
        }, "appProtocol targetPort"),
        externalIPs: at(5, list(ip)),
        externalTrafficPolicy: at(11, trafficPolicy),
        internalTrafficPolicy: pointerAt(22, trafficPolicy),
        healthCheckNodePort: at(12, v.nullish(portNumber(0))),
        loadBalancerSourceRanges: at(9, list(cidr)),
        sessionAffinity: at(7, v.nullish(oneOf("None", "ClientIP"))),
        sessionAffinityConfig: objectAt(14, {
          clientIP: objectAt(1, { timeoutSeconds: pointerAt(1, v.nullish(affinitySeconds)) }),
        }),
      },
      "selector loadBalancerIP loadBalancerClass allocateLoadBalancerNodePorts externalName " +
        "publishNotReadyAddresses ipFamilyPolicy trafficDistribution",
    ),
  ),
  status: objectAt(3, {
    loadBalancer: objectAt(1, {
      ingress: listAt(1, {
        ip: at(1, v.nullish(ip)),
        ipMode: pointerAt(3, v.nullish(oneOf("VIP", "Proxy"))),
      }, "*"),
    }, "*"),
  }, "*"),
}, "apiVersion kind");

/** A Service as a manifest has it. */
type ServiceManifest = v.InferOutput<typeof schema>;

/** core/v1 Service. */
export const SERVICE = defineKind({
  kind: "Service",
  group: "",
  versions: ["v1"],
  plural: "services",
  namespaced: true,
  schema,
  complete: completeService,
});

/** A Service, as far as it is read. */
export type Service = ObjectOf<typeof SERVICE>;

/** A port of a Service. */
export type ServiceSpecPort = NonNullable<Service["spec"]["ports"]>[number];

type Spec = ServiceManifest["spec"];
type Ports = NonNullable<Spec["ports"]>;

/** Seconds for which a client keeps its endpoint by default: three hours. */
export const DEFAULT_AFFINITY_SECONDS = 10_800;

/**
 * Completes a manifest: sets the defaults of an API server, and refuses what it would refuse beyond
 * single fields.
 */
function completeService(
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
  // The schema refuses such an address.
  if (addresses.some((each, index) => each !== "None" && families[index] === undefined)) return;
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

/** `undefined` for "None", which stands alone or not at all, and for an invalid address. */
function familyOf(text: string): IpFamily | undefined {
  const address = tryParseIpAddress(text);
  return address && ipFamilyOf(address);
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
