/** Finds the packets that FROM and TO mean on this node. Pure. */
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  parseIpAddress,
} from "../../net/ip_address.ts";
import { isFromPod, type LocalTrafficDetector } from "../../proxy/local_traffic.ts";
import type { Packet, PacketSender } from "../../proxy/packet.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import {
  type FromText,
  PacketEndsError,
  parseFrom,
  parseTo,
  type ToText,
} from "./packet_end_text.ts";
import { destinationsOf, type PacketScope } from "./packet_destinations.ts";

/** The packets between two ends, with the assumptions made. */
interface PacketEnds {
  /** At least one; several where the port was left out, or both IP families are meant. */
  readonly packets: readonly Packet[];
  /** The assumptions made, each a sentence without a full stop. */
  readonly assumptions: readonly string[];
}

/** Addresses for any outside client. RFC 5737 and RFC 3849 reserve them, so no client has them. */
const OUTSIDERS: Readonly<Record<IpFamily, readonly IpAddress[]>> = {
  IPv4: ["192.0.2.1", "198.51.100.1", "203.0.113.1"].map(parseIpAddress),
  IPv6: ["2001:db8::1", "2001:db8:ffff::1", "2001:db8:ffff:ffff::1"].map(parseIpAddress),
};

/**
 * Returns the packets from FROM to TO. Throws a ConfigurationError for invalid text, and a
 * {@linkcode PacketEndsError} for an unknown object.
 */
export function readPacketEnds(
  { from, to }: { readonly from: string; readonly to: string },
  world: PacketScope,
): PacketEnds {
  return resolvePacketEnds({ from: parseFrom(from), to: parseTo(to) }, world);
}

/** As {@linkcode readPacketEnds}, for parsed ends. */
function resolvePacketEnds(
  { from, to }: { readonly from: FromText; readonly to: ToText },
  world: PacketScope,
): PacketEnds {
  const family = from.kind === "address" ? ipFamilyOf(from.address) : undefined;
  const destinations = destinationsOf(to, { world, family });
  const assumptions = new Set<string>();
  const senders = new Map<IpFamily, PacketSender>();
  const packets = destinations.map((destination): Packet => {
    const family = ipFamilyOf(destination.to);
    const sender = senders.get(family) ?? senderOf(from, { family, world, assumptions });
    senders.set(family, sender);
    return { ...destination, from: sentTo(destination.to, sender) };
  });
  return { packets, assumptions: [...assumptions] };
}

/** The source that the kernel uses for all loopback addresses, unless a program names another one. */
const LOOPBACK: Readonly<Record<IpFamily, IpAddress>> = {
  IPv4: parseIpAddress("127.0.0.1"),
  IPv6: parseIpAddress("::1"),
};

function sentTo(to: IpAddress, sender: PacketSender): PacketSender {
  if (sender.kind !== "node" || !isLoopback(to) || isLoopback(sender.address)) return sender;
  return { ...sender, address: LOOPBACK[ipFamilyOf(to)] };
}

interface SenderContext {
  readonly family: IpFamily;
  readonly world: PacketScope;
  readonly assumptions: Set<string>;
}

function senderOf(from: FromText, context: SenderContext): PacketSender {
  switch (from.kind) {
    case "node":
      return { kind: "node", address: nodeAddressOf(context) };
    case "outside":
      return { kind: "outside", address: outsiderOf(context) };
    case "address":
      return namedSender(from, context);
  }
}

function nodeAddressOf({ family, world }: SenderContext): IpAddress {
  const own = world.nodeAddresses.filter((address) => ipFamilyOf(address) === family);
  const address = own.find((each) => !isLoopback(each) && !each.startsWith("fe80:")) ?? own[0];
  if (address !== undefined) return address;
  throw new PacketEndsError(
    `Cannot determine the node's address: no ${family} address of it is known`,
  );
}

function outsiderOf({ family, world, assumptions }: SenderContext): IpAddress {
  const detector = detectorOf(world, family);
  const address =
    OUTSIDERS[family].find((each) =>
      !world.nodeAddresses.includes(each) && isFromPod(detector, { address: each }) !== true
    ) ?? OUTSIDERS[family][0]!;
  assumptions.add(
    `${address} represents any outside client; give the client's address to check source ranges`,
  );
  return address;
}

function namedSender(
  { address, interfaceName: given, isPod }: FromText & { readonly kind: "address" },
  context: SenderContext,
): PacketSender {
  const { family, world } = context;
  const named = given === undefined ? {} : { interfaceName: given };
  if (!isPod && isNodeAddress(address, context)) return { kind: "node", address };
  const detector = detectorOf(world, family);
  const isLocal = isLocalEndpoint(address, world.plans.get(family));
  const isKnownPod = isPod || isLocal !== undefined || isFromPod(detector, { address }) === true;
  if (given !== undefined || detector.kind === "byCidr" || detector.kind === "none") {
    return { kind: isKnownPod ? "pod" : "outside", address, ...named };
  }
  return byInterface({ address, isPod: isKnownPod, isLocal }, detector, context);
}

/** Pods are recognized by their interface, which the user did not name. */
function byInterface(
  { address, isPod, isLocal }: {
    readonly address: IpAddress;
    readonly isPod: boolean;
    readonly isLocal: boolean | undefined;
  },
  detector: LocalTrafficDetector & { readonly kind: "byBridge" | "byInterfacePrefix" },
  { assumptions }: SenderContext,
): PacketSender {
  const name = detector.kind === "byBridge" ? detector.interfaceName : detector.prefix;
  const text = detector.kind === "byBridge" ? name : `${name}…`;
  const isHere = isPod && isLocal !== false;
  if (isLocal === undefined) {
    assumptions.add(
      `${address} is taken to ${isHere ? "be a pod of this node and " : ""}arrive by ` +
        `${isHere ? text : `another interface than ${text}`}; ${address}@INTERFACE says otherwise`,
    );
  }
  return { kind: isPod ? "pod" : "outside", address, ...(isHere && { interfaceName: name }) };
}

/** Whether an endpoint of this address is on this node; `undefined` = there is none. */
function isLocalEndpoint(address: IpAddress, plan: ProxyPlan | undefined): boolean | undefined {
  for (const { endpoints } of plan?.services.values() ?? []) {
    const found = endpoints.find((endpoint) => endpoint.address === address);
    if (found) return found.isLocal;
  }
  return undefined;
}

function isNodeAddress(address: IpAddress, { family, world }: SenderContext): boolean {
  return isLoopback(address) || world.nodeAddresses.includes(address) ||
    world.plans.get(family)?.shared.nodePortAddresses.includes(address) === true;
}

function detectorOf(world: PacketScope, family: IpFamily): LocalTrafficDetector {
  return world.plans.get(family)?.shared.localTraffic ?? { kind: "none" };
}
