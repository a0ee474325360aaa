import {
  DEFAULT_AFFINITY_SECONDS,
  type Service,
  type ServiceSpecPort,
} from "../api/kinds/service.ts";
import { SERVICE_PROXY_NAME_LABEL } from "../api/labels.ts";
import { type ObjectProblem, ProblemCollector } from "../api/problem.ts";
import {
  isExternalLocal,
  kubeRouterRemarks,
  SKIP_LOAD_BALANCER_IPS_ANNOTATION,
} from "../api/kube_router_annotations.ts";
import { EDGE_ANNOTATIONS, IPVS_ANNOTATIONS } from "../api/service_annotations.ts";
import { type Cidr, cidrFamilyOf, prefixLengthOf, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import { type Port, type Protocol, tryParsePort, tryParseProtocol } from "../net/port.ts";
import { type EdgeSettings, edgeSettingsOf } from "./edge_settings.ts";
import {
  type NamespacedName,
  namespacedNameOf,
  serviceKey,
  type ServicePortKey,
  servicePortKey,
  type ServicePortName,
} from "./service_port_name.ts";

/** The endpoints that traffic may use: those of the whole cluster, or only those on this node. */
export type TrafficPolicy = "Cluster" | "Local";

/** One port of a Service in one IP family. Values are parsed; absent ones are `undefined`. */
export interface ServicePort {
  readonly key: ServicePortKey;
  readonly name: ServicePortName;
  readonly clusterIp: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  readonly nodePort?: Port;
  readonly externalIps: readonly IpAddress[];
  /** Addresses of `status.loadBalancer.ingress` with ipMode unset or VIP. */
  readonly loadBalancerVips: readonly IpAddress[];
  /**
   * Sources that may use the load balancer addresses; `undefined` = all. An empty list admits none:
   * ranges were given but none is valid for this family (upstream admits all here).
   */
  readonly loadBalancerSourceRanges?: readonly Cidr[];
  /** Session affinity timeout of a client, in seconds; `undefined` = no session affinity. */
  readonly affinityTimeoutSeconds?: number;
  readonly internalTrafficPolicy: TrafficPolicy;
  readonly externalTrafficPolicy: TrafficPolicy;
  /**
   * Port of the health check for load balancers; only for type LoadBalancer with external policy
   * Local.
   */
  readonly healthCheckNodePort?: Port;
  /** Whether a node port, an external IP or a load balancer address leads here. */
  readonly externallyAccessible: boolean;
  /** RFC 3339, whole seconds, UTC, so that texts sort as times do; absent in most manifests. */
  readonly createdAt?: string;
  /** The annotations for single modes; absent if there are none. */
  readonly annotations?: ModeAnnotations;
  /** Settings for mode userspace; absent if there are none. */
  readonly edge?: EdgeSettings;
}

/** Options of {@linkcode servicePortsFromService}. */
export interface ServicePortOptions {
  readonly family: IpFamily;
  /** Whether `spec.externalIPs` is honoured (feature gate AllowServiceExternalIPs). @default {true} */
  readonly allowExternalIps?: boolean;
  /** Whether the values of annotations were checked by the reader of manifests. @default {false} */
  readonly areAnnotationsChecked?: boolean;
}

/** The ports of one Service, and the values that could not be used. */
export interface ServicePorts {
  readonly ports: readonly ServicePort[];
  readonly problems: readonly ObjectProblem[];
}

/** Maximum number of frontends of one Service, enough for 60,000 ports of one address. */
const MOST_FRONTENDS = 100_000;
const NO_SERVICE_PORTS: ServicePorts = { ports: [], problems: [] };

/** The reason why kube-relay does not serve a Service. */
export type UnproxiedReason = "ExternalName" | "headless" | "other proxy";

/** The fields that all ports of a Service share. */
type SharedFields = Omit<
  ServicePort,
  "key" | "name" | "port" | "protocol" | "nodePort" | "externallyAccessible"
>;

/**
 * Reads the ports of a Service for one IP family. Returns none for a Service that kube-relay does
 * not serve: headless, ExternalName, without a cluster IP of this family, or labelled for another
 * proxy. An unusable value is omitted and reported; the rest of the Service is still used.
 */
export function servicePortsFromService(
  service: Service,
  options: ServicePortOptions,
): ServicePorts {
  if (unproxiedReason(service) !== undefined) return NO_SERVICE_PORTS;
  const namespacedName = namespacedNameOf(service);
  const problems = new ProblemCollector("Service", serviceKey(namespacedName));
  const reading: ServiceReading = { ...options, service, problems };
  const clusterIp = clusterIpOf(reading);
  if (clusterIp === undefined) return { ports: [], problems: problems.problems };

  const externalIps = externalIpsOf(reading);
  const allowExternalIps = options.allowExternalIps ?? true;
  const shared = withBoundedNames(
    sharedFieldsOf(reading, { clusterIp, externalIps: allowExternalIps ? externalIps : [] }),
    problems,
  );
  // Upstream evaluates the external IPs before the feature gate removes them: the gate changes
  // which addresses are served, but not which endpoint lists are computed.
  const hasExternalAddress = externalIps.length > 0 || shared.loadBalancerVips.length > 0;
  // The frontends cost no more than a small multiple of the object.
  const { edge, loadBalancerSourceRanges: ranges = [], loadBalancerVips } = shared;
  const names = edge?.sni?.length ?? 1;
  const addresses = 1 + shared.externalIps.length * names +
    loadBalancerVips.length * Math.max(names, ranges.length);
  const mostPorts = Math.max(1, Math.floor(MOST_FRONTENDS / addresses));
  const ports = new Map<ServicePortKey, ServicePort>();
  for (const [index, specPort] of (service.spec.ports ?? []).entries()) {
    const own = portFieldsOf(specPort, namespacedName, `spec.ports[${index}]`, problems);
    if (own === undefined) continue;
    if (ports.size === mostPorts) {
      const message = "The port and those after it are left out: a Service may have 100000 " +
        "frontends, counted as ports times addresses, and load balancer addresses times source ranges";
      problems.report(`spec.ports[${index}]`, own.port, message);
      break;
    }
    if (ports.has(own.key)) {
      problems.report(
        `spec.ports[${index}].name`,
        own.name.port,
        "The port is left out: another port of the Service has the same name and protocol",
      );
      continue;
    }
    const externallyAccessible = hasExternalAddress || own.nodePort !== undefined;
    ports.set(own.key, { ...own, ...shared, externallyAccessible });
  }
  return { ports: [...ports.values()], problems: problems.problems };
}

/** Each server name is claimed at each external address: leaves out names that are too many for them. */
function withBoundedNames(shared: SharedFields, problems: ProblemCollector): SharedFields {
  const { edge, externalIps, loadBalancerVips } = shared;
  const most = Math.max(
    1,
    Math.floor(MOST_FRONTENDS / (externalIps.length + loadBalancerVips.length)),
  );
  const first = edge?.sni?.[most];
  if (edge?.sni === undefined || first === undefined) return shared;
  const message =
    "The name and those after it are left out: a Service may have 100000 frontends, " +
    "counted as external addresses times server names";
  problems.report(`metadata.annotations['${EDGE_ANNOTATIONS.sni.name}']`, first, message);
  return { ...shared, edge: { ...edge, sni: edge.sni.slice(0, most) } };
}

/** Returns the reason why no IP family of a Service is served; `undefined` = it is served. */
export function unproxiedReason({ metadata, spec }: Service): UnproxiedReason | undefined {
  if (spec.type === "ExternalName") return "ExternalName";
  if (spec.clusterIP === "None") return "headless";
  return metadata.labels?.[SERVICE_PROXY_NAME_LABEL] === undefined ? undefined : "other proxy";
}

function sharedFieldsOf(
  reading: ServiceReading,
  addresses: Pick<SharedFields, "clusterIp" | "externalIps">,
): SharedFields {
  const { service: { metadata, spec }, family, problems } = reading;
  const { creationTimestamp: createdAt } = metadata;
  const annotations = modeAnnotationsOf(metadata.annotations);
  const edge = edgeSettingsOf(reading.service, problems, reading.areAnnotationsChecked);
  const loadBalancerVips = loadBalancerVipsOf(reading);
  const sourceRanges = loadBalancerSourceRangesOf(reading);
  if (sourceRanges?.length === 0 && loadBalancerVips.length > 0) {
    problems.report(
      "spec.loadBalancerSourceRanges",
      `${family}: ${spec.loadBalancerSourceRanges?.join(", ")}`,
      "The load balancer addresses of this IP family admit no client: none of the given source ranges is valid for the family",
    );
  }
  const { sessionAffinity, sessionAffinityConfig: { clientIP } = {} } = spec;
  const affinityTimeoutSeconds = sessionAffinity === "ClientIP"
    ? clientIP?.timeoutSeconds ?? DEFAULT_AFFINITY_SECONDS
    : undefined;
  const { type = "ClusterIP", externalIPs = [] } = spec;
  for (const [name, value, remark] of kubeRouterRemarks(metadata.annotations)) {
    problems.report(`metadata.annotations['${name}']`, value, remark);
  }
  const isLocal = isExternalLocal(reading.service) &&
    (type === "LoadBalancer" || type === "NodePort" ||
      (type === "ClusterIP" && externalIPs.length > 0));
  // API servers give a port for the field, not for the annotation.
  const isChecked = isLocal && spec.externalTrafficPolicy === "Local" && type === "LoadBalancer";
  const healthCheckNodePort = isChecked ? tryParsePort(spec.healthCheckNodePort ?? 0) : undefined;
  if (isChecked && healthCheckNodePort === undefined) {
    problems.report(
      "spec.healthCheckNodePort",
      spec.healthCheckNodePort ?? 0,
      "Load balancers cannot check this node: a LoadBalancer Service with external traffic policy Local needs a port between 1 and 65535",
    );
  }
  return {
    ...addresses,
    loadBalancerVips,
    ...(sourceRanges && { loadBalancerSourceRanges: sourceRanges }),
    ...(affinityTimeoutSeconds !== undefined && { affinityTimeoutSeconds }),
    internalTrafficPolicy: spec.internalTrafficPolicy === "Local" ? "Local" : "Cluster",
    externalTrafficPolicy: isLocal ? "Local" : "Cluster",
    ...(healthCheckNodePort !== undefined && { healthCheckNodePort }),
    ...(createdAt !== undefined && { createdAt }),
    ...(annotations && { annotations }),
    ...(edge && { edge }),
  };
}

function portFieldsOf(
  specPort: ServiceSpecPort,
  { namespace, name: service }: NamespacedName,
  path: string,
  problems: ProblemCollector,
): Pick<ServicePort, "key" | "name" | "port" | "protocol" | "nodePort"> | undefined {
  const port = tryParsePort(specPort.port);
  if (port === undefined) {
    const message = "The port is left out: it has to be a whole number between 1 and 65535";
    problems.report(`${path}.port`, specPort.port, message);
    return undefined;
  }
  const protocol = tryParseProtocol(specPort.protocol);
  if (protocol === undefined) {
    const message = "The port is left out: its protocol has to be TCP, UDP or SCTP";
    problems.report(`${path}.protocol`, specPort.protocol, message);
    return undefined;
  }
  const nodePort = specPort.nodePort ? tryParsePort(specPort.nodePort) : undefined;
  if (specPort.nodePort && nodePort === undefined) {
    const message = "The node port is left out: it has to be a whole number between 1 and 65535";
    problems.report(`${path}.nodePort`, specPort.nodePort, message);
  }
  const name = { namespace, name: service, port: specPort.name ?? "", protocol };
  return {
    key: servicePortKey(name),
    name,
    port,
    protocol,
    ...(nodePort !== undefined && { nodePort }),
  };
}

/** A Service while it is read. */
interface ServiceReading extends ServicePortOptions {
  readonly service: Service;
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
function clusterIpOf(
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
function externalIpsOf(reading: ServiceReading): readonly IpAddress[] {
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
function loadBalancerVipsOf(reading: ServiceReading): readonly IpAddress[] {
  const { metadata: { annotations }, status } = reading.service;
  const { ingress = [] } = status?.loadBalancer ?? {};
  const isSkipped = annotations?.[SKIP_LOAD_BALANCER_IPS_ANNOTATION] !== undefined;
  if (ingress.length === 0 || isSkipped) return NO_ADDRESSES;
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
function loadBalancerSourceRangesOf(
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

/** The annotations that are passed on, by full name. */
export type ModeAnnotations = Readonly<Partial<Record<ModeAnnotation, string>>>;

/** One of {@linkcode IPVS_ANNOTATIONS}. */
export type ModeAnnotation = typeof IPVS_ANNOTATIONS[number];

/** The annotations of a Service for modes; `undefined` if it has none, as almost always. */
export function modeAnnotationsOf(
  annotations: Readonly<Record<string, string>> | undefined,
): ModeAnnotations | undefined {
  if (annotations === undefined) return undefined;
  const names = IPVS_ANNOTATIONS.filter((name) => annotations[name] !== undefined);
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, annotations[name]]));
}
