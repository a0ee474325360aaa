import type { Service } from "../api/kinds/service.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { type Frontend, frontendsOf, nodePortAddressesOf } from "./frontend.ts";
import type { ContestedFrontend, FrontendRole, Precedence, ServicePlan } from "./service_plan.ts";
import { withheldText } from "./frontend_owners.ts";
import type { Packet } from "./packet.ts";
import type { NearMiss, UnservedReason } from "./packet_explanation.ts";
import type { ProxyPlan, SharedPlan } from "./proxy_plan.ts";
import { unproxiedReason } from "./service_port.ts";
import { namespacedNameOf, serviceKey, type ServicePortKey } from "./service_port_name.ts";

/** The destination of a packet. */
type PacketTarget = Pick<Packet, "to" | "port" | "protocol">;

/** The ServicePort that owns an address and port. */
export interface PacketHit {
  readonly service: ServicePlan;
  readonly frontend: Frontend;
  /** Other claimants, and why they are not the owner. */
  readonly otherClaimants: readonly { readonly key: ServicePortKey; readonly why: Precedence }[];
}

/** Maximum number of near misses of each kind. */
const MOST_MISSES = 4;

/** Finds the owner of the address and port. Walks over all ServicePorts: about 1 ms for 10,000. */
export function findHit(
  { services, shared }: ProxyPlan,
  target: PacketTarget,
): PacketHit | undefined {
  let owner: Omit<PacketHit, "otherClaimants"> | undefined;
  const otherClaimants: PacketHit["otherClaimants"][number][] = [];
  for (const service of services.values()) {
    const { why } = contestedAt(service, target, shared) ?? {};
    if (why !== undefined) otherClaimants.push({ key: service.key, why });
    const frontend = frontendAt(service, target, shared);
    if (frontend) owner = { service, frontend };
  }
  return owner && { ...owner, otherClaimants };
}

/** An address and port that no ServicePort has, and the ServicePorts that ask for them. */
interface WithheldFrontend {
  readonly absence: { readonly why: "own-port" | "refused"; readonly detail: string };
  readonly claimants: readonly NearMiss[];
}

/** Finds out whether a ServicePort asks for an address and port that it may not have. */
export function findWithheld(
  { services, shared }: ProxyPlan,
  target: PacketTarget,
): WithheldFrontend | undefined {
  let absence: WithheldFrontend["absence"] | undefined;
  const claimants: NearMiss[] = [];
  for (const service of services.values()) {
    const { owner } = contestedAt(service, target, shared) ?? {};
    if (typeof owner !== "object") continue;
    const why = "refusal" in owner ? "refused" : "own-port";
    absence = { why, detail: withheldText(target.port, owner) };
    if (claimants.length < MOST_MISSES) {
      claimants.push(missOf(service, { kind: why, address: target.to }));
    }
  }
  return absence && { absence, claimants };
}

/** The frontend of a ServicePort at an address and port. */
function frontendAt(
  service: ServicePlan,
  { to, port, protocol }: PacketTarget,
  { nodePortAddresses }: Pick<SharedPlan, "nodePortAddresses">,
): Frontend | undefined {
  if (service.protocol !== protocol) return undefined;
  if (service.nodePort !== port && addressRoleOf(service, to) === undefined) return undefined;
  const isNodePortAddress = nodePortAddresses.includes(to) &&
    nodePortAddressesOf(service, [to]).length > 0;
  return frontendsOf(service).find((frontend) =>
    frontend.port === port &&
    (frontend.address === undefined ? isNodePortAddress : frontend.address === to)
  );
}

/** The frontend that a ServicePort claims at an address and port, and does not own. */
function contestedAt(
  { contested, protocol }: ServicePlan,
  target: PacketTarget,
  { nodePortAddresses }: Pick<SharedPlan, "nodePortAddresses">,
): ContestedFrontend | undefined {
  if (contested === undefined || protocol !== target.protocol) return undefined;
  return contested.find(({ address, port }) =>
    port === target.port &&
    (address === undefined ? nodePortAddresses.includes(target.to) : address === target.to)
  );
}

function addressRoleOf(service: ServicePlan, to: IpAddress): FrontendRole | undefined {
  if (service.clusterIp === to) return "ClusterIP";
  if (service.externalIps.includes(to)) return "ExternalIP";
  return service.loadBalancerVips.includes(to) ? "LoadBalancer" : undefined;
}

/** ServicePorts that the user may have meant, the likeliest first. */
export function nearMisses({ services }: ProxyPlan, target: PacketTarget): readonly NearMiss[] {
  const { to, port, protocol } = target;
  const found: Record<"sameAddress" | "nodePort" | "endpoint", NearMiss[]> = {
    sameAddress: [],
    nodePort: [],
    endpoint: [],
  };
  // Those with the longest common prefix of the address: typing errors tend to be at the end.
  const elsewhere: { readonly miss: NearMiss; readonly common: number }[] = [];
  for (const service of services.values()) {
    if (addressRoleOf(service, to) !== undefined) {
      const kind = isTargetPort(service, target) ? "target-port" : "other-port";
      found.sameAddress.push(missOf(service, { kind, address: to }));
    } else if (service.nodePort === port && service.protocol === protocol) {
      found.nodePort.push(missOf(service, { kind: "node-port", address: to }));
    } else if (hasEndpoint(service, target)) {
      found.endpoint.push(missOf(service, { kind: "endpoint", address: to }));
    } else if (service.port === port && service.protocol === protocol) {
      const { clusterIp, externalIps, loadBalancerVips } = service;
      for (const address of [clusterIp, ...externalIps, ...loadBalancerVips]) {
        const common = commonLength(address, to);
        if (elsewhere.length === MOST_MISSES && elsewhere.at(-1)!.common >= common) continue;
        elsewhere.push({ miss: missOf(service, { kind: "other-address", address }), common });
        elsewhere.sort((one, other) => other.common - one.common).splice(MOST_MISSES);
      }
    }
  }
  return [
    ...found.endpoint.slice(0, MOST_MISSES),
    ...found.sameAddress.slice(0, MOST_MISSES),
    ...found.nodePort.slice(0, MOST_MISSES),
    ...elsewhere.map(({ miss }) => miss),
  ];
}

function missOf(
  { key, port, protocol }: ServicePlan,
  { kind, address }: Pick<NearMiss, "address" | "kind">,
): NearMiss {
  return { kind, service: key, address, port, protocol };
}

function isTargetPort(service: ServicePlan, { port, protocol }: PacketTarget): boolean {
  return service.protocol === protocol &&
    service.endpoints.some((endpoint) => endpoint.port === port);
}

function hasEndpoint(service: ServicePlan, { to, port, protocol }: PacketTarget): boolean {
  return service.protocol === protocol &&
    service.endpoints.some((endpoint) => endpoint.address === to && endpoint.port === port);
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

/** The Services that have the address. Reads the addresses of each: about 2 ms for 1,000. */
export function unservedAt(services: Iterable<Service>, address: IpAddress): readonly NearMiss[] {
  const found: NearMiss[] = [];
  for (const service of services) {
    const place = placeOf(service, address);
    if (place === undefined) continue;
    const reason: UnservedReason = unproxiedReason(service) ?? place;
    const { ports = [] } = service.spec;
    // A served port is reported from the plan.
    if (reason === "no usable port" && ports.length > 0) continue;
    const name = serviceKey(namespacedNameOf(service));
    found.push({ kind: "unserved", service: name, address, reason });
  }
  return found;
}

/** The reason why a Service of kube-relay may not be served at this address. */
function placeOf({ spec, status }: Service, address: IpAddress): UnservedReason | undefined {
  const isIt = (text: string | undefined) => text !== undefined && isAddress(text, address);
  if ([spec.clusterIP, ...spec.clusterIPs ?? []].some(isIt)) return "no usable port";
  if (spec.externalIPs?.some(isIt)) return "external IP";
  const ingress = status?.loadBalancer?.ingress?.find(({ ip }) => isIt(ip));
  if (ingress === undefined) return undefined;
  return ingress.ipMode === "Proxy" ? "ipMode Proxy" : "no usable port";
}

/**
 * Fast path: most objects use the canonical spelling, and parsing takes a hundred times as long.
 */
function isAddress(text: string, address: IpAddress): boolean {
  if (text === address) return true;
  const isUsual = /^\d{1,3}(\.\d{1,3}){3}$/.test(text) && !/(^|\.)0\d/.test(text);
  return !isUsual && tryParseIpAddress(text) === address;
}

/** A Service that has the address at another port is not reported as one without the address. */
export function withoutServed(
  unserved: readonly NearMiss[],
  misses: readonly NearMiss[],
): readonly NearMiss[] {
  const served = misses.filter(({ kind }) => kind === "other-port" || kind === "target-port");
  const isServed = (name: string) =>
    served.some(({ service }) => service.startsWith(`${name}:`) || service.startsWith(`${name}/`));
  return [...unserved.filter(({ service }) => !isServed(service)), ...misses];
}
