/** Finds the possible destinations of a packet that is addressed to a Service, an address or the node. Pure. */
import type { Service } from "../../api/kinds/service.ts";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
} from "../../net/ip_address.ts";
import { formatHostPort, type Port, type Protocol } from "../../net/port.ts";
import type { Packet } from "../../proxy/packet.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { unproxiedReason } from "../../proxy/service_port.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { PacketEndsError, type ToText } from "./packet_end_text.ts";
import { nearestServices } from "./find_service_ports.ts";

type PacketDestination = Omit<Packet, "from">;

/** The scope and the family of a name lookup. */
interface DestinationSearch {
  readonly world: PacketScope;
  /** Of the sender; `undefined` = either. */
  readonly family: IpFamily | undefined;
}

/** More than these are too many to read. */
const MOST_DESTINATIONS = 64;
/** So many ports are named in an error. */
const MOST_NAMED = 8;

/** Everything that is meant, at least one. Throws a {@linkcode PacketEndsError}. */
export function destinationsOf(
  to: ToText,
  search: DestinationSearch,
): readonly PacketDestination[] {
  const found = to.kind === "address"
    ? ofAddress(to, search)
    : to.kind === "node"
    ? ofNode(to, search)
    : ofService(to, search);
  if (found.length <= MOST_DESTINATIONS) return found;
  throw new PacketEndsError(
    `Cannot answer for ${found.length} ports at once, ${MOST_DESTINATIONS} at most: name a port`,
  );
}

function ofAddress(
  { address, port, protocol }: ToText & { readonly kind: "address" },
  { world, family }: DestinationSearch,
): readonly PacketDestination[] {
  const own = ipFamilyOf(address);
  if (family !== undefined && family !== own) {
    throw new PacketEndsError(
      `Cannot send from an ${family} address to the ${own} address ${address}: ` +
        "both ends of a packet are of one IP family",
    );
  }
  if (port !== undefined) return [{ to: address, port, protocol: protocol ?? "TCP" }];
  const services = [...world.plans.get(own)?.services.values() ?? []]
    .filter((service) => hasAddress(service, address));
  if (services.length > 0) return unique(services.map((plan) => at(plan, address)));
  throw new PacketEndsError(
    `Cannot determine the port of ${address}: no Service has this address; ` +
      `name a port, as in ${formatHostPort(address, 80)}`,
  );
}

function ofNode(
  { port, protocol }: ToText & { readonly kind: "node" },
  { world, family }: DestinationSearch,
): readonly PacketDestination[] {
  const asked = IP_FAMILIES.flatMap((each) => world.plans.get(each) ?? [])
    .filter((plan) => family === undefined || family === plan.family)
    .map((plan) => ({ to: nodePortAddressOf(plan, world), known: protocolsOf(plan, port) }));
  // A family without the port is reported only if the other family does not have it either.
  const isKnown = asked.some(({ to, known }) => to !== undefined && known.length > 0);
  const found = asked.flatMap(({ to, known }): readonly PacketDestination[] => {
    if (to === undefined || (isKnown && known.length === 0)) return [];
    const protocols = protocol ? [protocol] : known.length > 0 ? known : ["TCP" as const];
    return protocols.map((protocol) => ({ to, port, protocol }));
  });
  if (found.length > 0) return found;
  throw new PacketEndsError(
    `Cannot determine the address of the node: none ${family ?? "of either IP family"} is ` +
      "known; name the address in place of 'node'",
  );
}

/** The node's own address where it serves node ports, else the first that does. */
function nodePortAddressOf(
  { family, shared: { nodePortAddresses } }: ProxyPlan,
  { nodeAddresses }: PacketScope,
): IpAddress | undefined {
  const own = nodeAddresses.filter((address) =>
    ipFamilyOf(address) === family && !isLoopback(address) && !address.startsWith("fe80:")
  );
  return own.find((address) => nodePortAddresses.includes(address)) ??
    nodePortAddresses.find((address) => !isLoopback(address)) ?? own[0];
}

/** Those of the ServicePorts that have this node port. */
function protocolsOf({ services }: ProxyPlan, port: Port): readonly Protocol[] {
  const found = new Set<Protocol>();
  for (const { nodePort, protocol } of services.values()) {
    if (nodePort === port) found.add(protocol);
  }
  return [...found];
}

function ofService(
  to: ToText & { readonly kind: "service" },
  search: DestinationSearch,
): readonly PacketDestination[] {
  const { world, family } = search;
  const key = serviceKey(to);
  const all = IP_FAMILIES.flatMap((each) =>
    [...world.plans.get(each)?.services.values() ?? []].filter(({ name }) =>
      serviceKey(name) === key
    )
  );
  if (all.length === 0) throw unknownService(to, world);
  const ofFamily = all.filter(({ clusterIp }) =>
    family === undefined || ipFamilyOf(clusterIp) === family
  );
  if (ofFamily.length === 0) {
    throw new PacketEndsError(
      `Cannot send from an ${family} address to Service '${key}': it has no ${family} address`,
    );
  }
  const wanted = ofFamily.filter((plan) => isPort(plan, to));
  if (wanted.length > 0) return unique(wanted.map((plan) => at(plan, plan.clusterIp)));
  const known = [...new Set(ofFamily.map(portText))];
  const more = known.length > MOST_NAMED ? `, and ${known.length - MOST_NAMED} more` : "";
  throw new PacketEndsError(
    `Cannot find port '${to.portText}'${to.protocol ? ` of ${to.protocol}` : ""} of Service ` +
      `'${key}': it has ${known.slice(0, MOST_NAMED).join(", ")}${more}`,
  );
}

function isPort(
  { name, port, protocol: own }: ServicePlan,
  { portText, protocol }: ToText & { readonly kind: "service" },
): boolean {
  if (protocol !== undefined && protocol !== own) return false;
  return portText === undefined || name.port === portText || String(port) === portText;
}

function portText({ name, port, protocol }: ServicePlan): string {
  return `${name.port === "" ? "" : `${name.port} `}${port}/${protocol}`;
}

function unknownService(
  to: ToText & { readonly kind: "service" },
  { services, plans }: PacketScope,
): PacketEndsError {
  const key = serviceKey(to);
  const all = new Map<string, Service>();
  for (const service of services()) all.set(serviceKey(namespacedNameOf(service)), service);
  const service = all.get(key);
  const start = `Cannot find an address of Service '${key}'`;
  if (service === undefined) {
    const hint = nearestServices(key, [...all.keys()]);
    const rest = hint === ""
      ? "; a headless Service, or one of another proxy, may not have been read"
      : hint;
    return new PacketEndsError(`${start}: none of ${all.size} Services has this name${rest}`);
  }
  switch (unproxiedReason(service)) {
    case "ExternalName":
      return new PacketEndsError(
        `${start}: it is an ExternalName, an alias in DNS; its clients go to that name themselves`,
      );
    case "headless":
      return new PacketEndsError(
        `${start}: it is headless; DNS gives its clients the addresses of the pods, and no proxy ` +
          "has a part in it",
      );
    case "other proxy":
      return new PacketEndsError(
        `${start}: by its label service.kubernetes.io/service-proxy-name another proxy serves it`,
      );
    case undefined: {
      const families = [...plans.keys()].join(" or ");
      return new PacketEndsError(
        `${start}: it has no cluster IP of ${families}, or no port that can be used`,
      );
    }
  }
}

function hasAddress(plan: ServicePlan, address: IpAddress): boolean {
  return plan.clusterIp === address || plan.externalIps.includes(address) ||
    plan.loadBalancerVips.includes(address);
}

function at({ port, protocol }: ServicePlan, to: IpAddress): PacketDestination {
  return { to, port, protocol };
}

function unique(destinations: readonly PacketDestination[]): readonly PacketDestination[] {
  const byText = new Map(
    destinations.map((each) => [`${each.to} ${each.port} ${each.protocol}`, each]),
  );
  return [...byText.values()];
}

/** The scope in which names are looked up. */
export interface PacketScope {
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** Of both families; the first of each stands for the node. */
  readonly nodeAddresses: readonly IpAddress[];
  /** Every Service, those that nothing is planned for included. Asked only where something is unknown. */
  readonly services: () => Iterable<Service>;
}
