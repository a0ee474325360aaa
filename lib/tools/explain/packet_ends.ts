/** Reads FROM and TO of `explain` and `trace`, and finds the packets that they mean on this node. Pure. */
import type { Service } from "../../api/kinds/service.ts";
import { ConfigurationError } from "../../config/configuration_error.ts";
import { printableText } from "../../log/printable_text.ts";
import { isInterfaceName } from "../../net/interface_name.ts";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  parseIpAddress,
  tryParseIpAddress,
} from "../../net/ip_address.ts";
import {
  formatHostPort,
  type Port,
  type Protocol,
  PROTOCOLS,
  tryParsePort,
} from "../../net/port.ts";
import { type ServerName, tryParseServerName } from "../../net/server_name.ts";
import { isFromPod, type LocalTrafficDetector } from "../../proxy/local_traffic.ts";
import type { Packet, PacketSender } from "../../proxy/packet.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { unproxiedReason } from "../../proxy/service_port.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { nearestServices } from "./find_service_ports.ts";
import { FROM_FORMS, TO_FORMS } from "./packet_end_forms.ts";

/** The sender of the packet. `isPod`: it was named as a pod's, `namespace/address`. */
type FromText =
  | { readonly kind: "node" }
  | { readonly kind: "outside" }
  | {
    readonly kind: "address";
    readonly address: IpAddress;
    /** By which it arrives at this node. */
    readonly interfaceName: string | undefined;
    readonly isPod: boolean;
  };

/** FROM and TO, and the server name that the client asks for by TLS. */
export interface PacketEnds {
  readonly from: string;
  readonly to: string;
  readonly sni?: string | undefined;
}

/** A parsed TO. Without a port, it means every port of the Service or address. */
type ToText =
  & { readonly protocol?: Protocol | undefined }
  & (
    | { readonly kind: "address"; readonly address: IpAddress; readonly port?: Port }
    | { readonly kind: "node"; readonly port: Port }
    | {
      readonly kind: "service";
      /** `namespace/name`, also of a pod. */
      readonly key: string;
      /** Name or number of a port of the Service. */
      readonly portText: string | undefined;
    }
  );

/** The scope in which names are looked up. */
export interface PacketScope {
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** Of both families; the first of each stands for the node. */
  readonly nodeAddresses: readonly IpAddress[];
  /** Every Service, those that nothing is planned for included. Asked only where something is unknown. */
  readonly services: () => Iterable<Service>;
  /** The addresses of the pod `namespace/name`; `undefined` = no pods are known. */
  readonly podAddresses?: ((pod: string) => readonly IpAddress[]) | undefined;
}

/** An end of the packet does not exist, or is ambiguous. */
export class PacketEndsError extends Error {
  override name = "PacketEndsError";

  /** Names of objects may be part of the message. */
  constructor(message: string) {
    super(printableText(message));
  }
}

function wrong(end: "FROM" | "TO", text: string, reason: string): ConfigurationError {
  return new ConfigurationError([printableText(`Cannot read ${end} '${text}': ${reason}`)]);
}

/** Parses FROM. Throws a ConfigurationError with the expected forms. */
export function parseFrom(text: string): FromText {
  if (text === "node" || text === "outside") return { kind: text };
  const [, namespace, host = "", interfaceName] =
    /^(?:([^/@]+)\/)?([^/@]+)(?:@(.*))?$/.exec(text) ?? [];
  const address = tryParseIpAddress(unbracketed(host));
  if (address === undefined) {
    const [, plain = ""] = /^(.*):\d+$/.exec(host) ?? [];
    if (tryParseIpAddress(unbracketed(plain)) !== undefined) {
      throw wrong("FROM", text, "the port that it is sent from plays no part: leave it out");
    }
    const reason = namespace === undefined
      ? `expected ${FROM_FORMS}`
      : "pods are known by name only if NetworkPolicies are enforced; " +
        `'kubectl get pod -o wide' shows it, for ${namespace}/ADDRESS`;
    throw wrong("FROM", text, reason);
  }
  if (interfaceName !== undefined && !isInterfaceName(interfaceName)) {
    throw wrong("FROM", text, `no interface can be called '${interfaceName}'`);
  }
  return { kind: "address", address, interfaceName, isPod: namespace !== undefined };
}

function unbracketed(host: string): string {
  return host.replace(/^\[(.*)\]$/, "$1");
}

/** The name of a pod as FROM may have it: with an address in place of the name it is none. */
export function parsePodName(text: string): string | undefined {
  const [, name] = /^[^/@:\s]+\/([^/@:\s]+)$/.exec(text) ?? [];
  return name === undefined || tryParseIpAddress(name) !== undefined ? undefined : text;
}

/** Parses TO. Throws a ConfigurationError with the expected forms. */
export function parseTo(text: string): ToText {
  const [word, nodePort] = /^node(?::(.*))?$/.exec(text) ?? [];
  if (word !== undefined) {
    const { port, protocol } = parsePortText(text, nodePort);
    if (port === undefined) throw wrong("TO", text, "name a node port, as in node:30080");
    return { kind: "node", port, protocol };
  }
  // An IPv6 address without brackets is taken whole: where its port began could not be known.
  const whole = tryParseIpAddress(text);
  if (whole !== undefined) return { kind: "address", address: whole };
  const [, bracketed, plain, ports] = /^(?:\[([^\]]*)\]|([0-9.]+))(?::(.*))?$/.exec(text) ?? [];
  const address = tryParseIpAddress(bracketed ?? plain ?? "");
  if (address !== undefined) return { kind: "address", address, ...parsePortText(text, ports) };
  const [, key, name = "", portText, protocol] =
    /^([^/:\s]+\/([^/:\s]+))(?::([^/:\s]+)(?:\/([^/:\s]*))?)?$/.exec(text) ?? [];
  if (key === undefined) throw wrong("TO", text, `expected ${TO_FORMS}`);
  if (tryParseIpAddress(name) !== undefined) {
    throw wrong("TO", text, `give only the address, as in ${name}:${portText ?? "80"}`);
  }
  return { kind: "service", key, portText, protocol: parseProtocol(text, protocol) };
}

function parsePortText(
  text: string,
  ports: string | undefined,
): { readonly port?: Port; readonly protocol?: Protocol | undefined } {
  if (ports === undefined) return {};
  const [number = "", word, ...rest] = ports.split("/");
  const port = tryParsePort(number);
  if (port !== undefined && rest.length === 0) return { port, protocol: parseProtocol(text, word) };
  const reason = `'${ports}' is not a port; a port is a whole number between 1 and 65535`;
  throw wrong("TO", text, reason);
}

function parseProtocol(text: string, word: string | undefined): Protocol | undefined {
  const protocol = PROTOCOLS.find((each) => each === word?.toUpperCase());
  if (word === undefined || protocol !== undefined) return protocol;
  throw wrong("TO", text, `'${word}' is none of the protocols ${PROTOCOLS.join(", ")}`);
}

/** Parses the server name of a TLS client. Throws a ConfigurationError. */
export function parseSni(text: string): ServerName {
  const name = tryParseServerName(text);
  if (name !== undefined) return name;
  const expected = "expected a host name in ASCII, such as shop.example.com";
  throw new ConfigurationError([printableText(`Cannot read --sni '${text}': ${expected}`)]);
}

/**
 * Returns the packets from FROM to TO: at least one, several where the port was left out or both IP
 * families are meant. The assumptions are sentences without a full stop. Throws a ConfigurationError
 * for invalid text, and a {@linkcode PacketEndsError} for an unknown object.
 */
export function readPacketEnds(
  { from: fromText, to: toText, sni }: PacketEnds,
  world: PacketScope,
): { readonly packets: readonly Packet[]; readonly assumptions: readonly string[] } {
  const from = podSender(fromText, toText, world) ?? parseFrom(fromText);
  const to = parseTo(toText);
  const serverName = sni === undefined ? {} : { serverName: parseSni(sni) };
  const family = from.kind === "address" ? ipFamilyOf(from.address) : undefined;
  const assumptions = new Set<string>();
  const senders = new Map<IpFamily, PacketSender>();
  const found = to.kind === "address"
    ? ofAddress(to, family, world)
    : to.kind === "node"
    ? ofNode(to, family, world)
    : ofServiceOrPod(to, toText, family, world);
  if (found.length > MOST_DESTINATIONS) {
    throw new PacketEndsError(
      `Cannot answer for ${found.length} ports at once, ${MOST_DESTINATIONS} at most: name a port`,
    );
  }
  const packets = found.map((destination): Packet => {
    const ownFamily = ipFamilyOf(destination.to);
    const sender = senders.get(ownFamily) ?? senderOf(from, ownFamily, world, assumptions);
    senders.set(ownFamily, sender);
    // The kernel's source for all loopback addresses, unless a program names another one.
    const isLooped = sender.kind === "node" && isLoopback(destination.to) &&
      !isLoopback(sender.address);
    const address = parseIpAddress(ownFamily === "IPv4" ? "127.0.0.1" : "::1");
    return { ...destination, ...serverName, from: isLooped ? { ...sender, address } : sender };
  });
  return { packets, assumptions: [...assumptions] };
}

/** The pod that FROM names, with its address of the family of TO where that is an address. */
function podSender(
  from: string,
  to: string,
  { podAddresses }: PacketScope,
): FromText | undefined {
  const name = podAddresses && parsePodName(from);
  if (!podAddresses || name === undefined) return undefined;
  const addresses = podAddresses(name);
  const wanted = parseTo(to);
  const family = wanted.kind === "address" ? ipFamilyOf(wanted.address) : undefined;
  const address = addresses.find((each) => ipFamilyOf(each) === family) ?? addresses[0];
  if (address !== undefined) {
    return { kind: "address", address, interfaceName: undefined, isPod: true };
  }
  throw new PacketEndsError(
    `Cannot find pod '${name}': there is none with this name and an address of its own`,
  );
}

/** Addresses for any outside client. RFC 5737 and RFC 3849 reserve them, so no client has them. */
const OUTSIDERS: Readonly<Record<IpFamily, readonly IpAddress[]>> = {
  IPv4: ["192.0.2.1", "198.51.100.1", "203.0.113.1"].map(parseIpAddress),
  IPv6: ["2001:db8::1", "2001:db8:ffff::1", "2001:db8:ffff:ffff::1"].map(parseIpAddress),
};

function senderOf(
  from: FromText,
  family: IpFamily,
  { plans, nodeAddresses }: PacketScope,
  assumptions: Set<string>,
): PacketSender {
  const plan = plans.get(family);
  const detector: LocalTrafficDetector = plan?.shared.localTraffic ?? { kind: "none" };
  if (from.kind === "node") {
    const own = nodeAddresses.filter((address) => ipFamilyOf(address) === family);
    const address = own.find(isUsual) ?? own[0];
    if (address !== undefined) return { kind: "node", address };
    throw new PacketEndsError(
      `Cannot determine the node's address: no ${family} address of it is known`,
    );
  }
  if (from.kind === "outside") {
    const address = OUTSIDERS[family].find((each) =>
      !nodeAddresses.includes(each) && isFromPod(detector, { address: each }) !== true
    ) ?? OUTSIDERS[family][0]!;
    assumptions.add(
      `${address} represents any outside client; give the client's address to check source ranges`,
    );
    return { kind: "outside", address };
  }
  const { address, interfaceName, isPod } = from;
  const isOfNode = isLoopback(address) || nodeAddresses.includes(address) ||
    plan?.shared.nodePortAddresses.includes(address);
  if (!isPod && isOfNode) return { kind: "node", address };
  const endpoint = [...plan?.services.values() ?? []].flatMap(({ endpoints }) => endpoints)
    .find((endpoint) => endpoint.address === address);
  const isKnownPod = isPod || endpoint !== undefined || isFromPod(detector, { address }) === true;
  const kind = isKnownPod ? "pod" : "outside";
  if (interfaceName !== undefined) return { kind, address, interfaceName };
  if (detector.kind === "byCidr" || detector.kind === "none") return { kind, address };
  // Pods are recognized by their interface, which the user did not name.
  const name = detector.kind === "byBridge" ? detector.interfaceName : detector.prefix;
  const text = detector.kind === "byBridge" ? name : `${name}…`;
  const isHere = isKnownPod && endpoint?.isLocal !== false;
  if (endpoint === undefined) {
    assumptions.add(
      `${address} is taken to ${isHere ? "be a pod of this node and " : ""}arrive by ` +
        `${isHere ? text : `another interface than ${text}`}; ${address}@INTERFACE says otherwise`,
    );
  }
  return { kind, address, ...(isHere && { interfaceName: name }) };
}

/** Neither loopback nor link-local. */
function isUsual(address: IpAddress): boolean {
  return !isLoopback(address) && !address.startsWith("fe80:");
}

type PacketDestination = Omit<Packet, "from">;

/** More than these are too many to read. */
const MOST_DESTINATIONS = 64;
/** So many ports are named in an error. */
const MOST_NAMED = 8;

// `family` is that of the sender; `undefined` = either.

function ofAddress(
  { address, port, protocol = "TCP" }: ToText & { readonly kind: "address" },
  family: IpFamily | undefined,
  { plans }: PacketScope,
): readonly PacketDestination[] {
  const own = ipFamilyOf(address);
  if (family !== undefined && family !== own) {
    throw new PacketEndsError(
      `Cannot send from an ${family} address to the ${own} address ${address}: ` +
        "both ends of a packet are of one IP family",
    );
  }
  if (port !== undefined) return [{ to: address, port, protocol }];
  const services = [...plans.get(own)?.services.values() ?? []].filter((
    { clusterIp, externalIps, loadBalancerVips },
  ) => [clusterIp, ...externalIps, ...loadBalancerVips].includes(address));
  if (services.length > 0) return unique(services, () => address);
  throw new PacketEndsError(
    `Cannot determine the port of ${address}: no Service has this address; ` +
      `name a port, as in ${formatHostPort(address, 80)}`,
  );
}

function ofNode(
  { port, protocol }: ToText & { readonly kind: "node" },
  family: IpFamily | undefined,
  { plans, nodeAddresses }: PacketScope,
): readonly PacketDestination[] {
  const asked = IP_FAMILIES.flatMap((each) => plans.get(each) ?? [])
    .filter((plan) => family === undefined || family === plan.family)
    .map(({ family, services, shared: { nodePortAddresses } }) => {
      const own = nodeAddresses.filter((each) => ipFamilyOf(each) === family && isUsual(each));
      // The node's own address where it serves node ports, else the first that does.
      const to = own.find((address) => nodePortAddresses.includes(address)) ??
        nodePortAddresses.find((address) => !isLoopback(address)) ?? own[0];
      const known = [...services.values()].filter(({ nodePort }) => nodePort === port)
        .map(({ protocol }) => protocol);
      return { to, known: [...new Set(known)] };
    });
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

/** The name of a Service takes precedence over that of a pod. */
function ofServiceOrPod(
  to: ToText & { readonly kind: "service" },
  text: string,
  family: IpFamily | undefined,
  world: PacketScope,
): readonly PacketDestination[] {
  try {
    return ofService(to, family, world);
  } catch (error) {
    const address = world.podAddresses?.(to.key)
      .find((each) => family === undefined || ipFamilyOf(each) === family);
    if (address === undefined) throw error;
    const port = tryParsePort(to.portText ?? "");
    if (port !== undefined) return [{ to: address, port, protocol: to.protocol ?? "TCP" }];
    const reason = "this is a pod: give the number of a port, as in NAMESPACE/POD:80";
    throw wrong("TO", text, reason);
  }
}

function ofService(
  { key, portText, protocol }: ToText & { readonly kind: "service" },
  family: IpFamily | undefined,
  world: PacketScope,
): readonly PacketDestination[] {
  const all = IP_FAMILIES.flatMap((each) => [...world.plans.get(each)?.services.values() ?? []])
    .filter(({ name }) => serviceKey(name) === key);
  if (all.length === 0) throw unknownService(key, world);
  const ofFamily = all.filter(({ clusterIp }) =>
    family === undefined || ipFamilyOf(clusterIp) === family
  );
  if (ofFamily.length === 0) {
    throw new PacketEndsError(
      `Cannot send from an ${family} address to Service '${key}': it has no ${family} address`,
    );
  }
  const wanted = ofFamily.filter(({ name, port, protocol: own }) =>
    (protocol === undefined || protocol === own) &&
    (portText === undefined || name.port === portText || String(port) === portText)
  );
  if (wanted.length > 0) return unique(wanted, ({ clusterIp }) => clusterIp);
  const known = ofFamily.map(({ name, port, protocol }) =>
    `${name.port === "" ? "" : `${name.port} `}${port}/${protocol}`
  );
  const ports = [...new Set(known)];
  const more = ports.length > MOST_NAMED ? `, and ${ports.length - MOST_NAMED} more` : "";
  throw new PacketEndsError(
    `Cannot find port '${portText}'${protocol ? ` of ${protocol}` : ""} of Service '${key}': ` +
      `it has ${ports.slice(0, MOST_NAMED).join(", ")}${more}`,
  );
}

function unique(
  services: readonly ServicePlan[],
  addressOf: (service: ServicePlan) => IpAddress,
): readonly PacketDestination[] {
  const byText = new Map(services.map((service): [string, PacketDestination] => {
    const { port, protocol } = service;
    const to = addressOf(service);
    return [`${to} ${port} ${protocol}`, { to, port, protocol }];
  }));
  return [...byText.values()];
}

function unknownService(key: string, { services, plans }: PacketScope): PacketEndsError {
  const all = new Map<string, Service>();
  for (const service of services()) all.set(serviceKey(namespacedNameOf(service)), service);
  const service = all.get(key);
  const error = (reason: string) =>
    new PacketEndsError(`Cannot find an address of Service '${key}': ${reason}`);
  if (service === undefined) {
    const hint = nearestServices(key, [...all.keys()]) ||
      "; a headless Service, or one of another proxy, may not have been read";
    return error(`none of ${all.size} Services has this name${hint}`);
  }
  const reason = unproxiedReason(service);
  if (reason !== undefined) return error(UNPROXIED[reason]);
  const families = [...plans.keys()].join(" or ");
  return error(`it has no cluster IP of ${families}, or no port that can be used`);
}

const UNPROXIED = {
  ExternalName: "it is an ExternalName, an alias in DNS; its clients go to that name themselves",
  headless:
    "it is headless; DNS gives its clients the addresses of the pods, and no proxy has a part in it",
  "other proxy": "by its label service.kubernetes.io/service-proxy-name another proxy serves it",
} as const;
