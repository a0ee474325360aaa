/**
 * The parts that every walk of a packet has: the packet, and the rules and elements that it meets. Pure.
 *
 * @module
 */
import { type IpAddress, type IpFamily, isLoopback } from "../../../lib/net/ip_address.ts";
import type { PacketHit } from "../../../lib/explain/packet_hit.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { Protocol } from "../../../lib/net/port.ts";
import type { Packet } from "../../../lib/proxy/packet.ts";
import type { PacketCarrier } from "../../../lib/proxy/packet_explanation.ts";

/** A packet that opens a connection. */
export interface WalkedPacket {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly port: number;
  readonly protocol: Protocol;
  /** The interface by which it arrives, empty if unknown; absent = the node itself sends it. */
  readonly inInterface?: string;
}

/** A packet that may be one without ports, of which no rule knows more than that. */
export interface AnyPacket extends Omit<WalkedPacket, "protocol"> {
  readonly protocol: WalkedPacket["protocol"] | "ICMP";
}

/** Returns the packet of an explanation as walks take it. */
export function walkedPacket({ from, to, port, protocol }: Packet): WalkedPacket {
  return {
    source: from.address,
    destination: to,
    port,
    protocol,
    ...(from.kind !== "node" && { inInterface: from.interfaceName ?? "" }),
  };
}

/** Returns a test of whether an address is one of the node. */
export function nodeAddressTest(
  { shared: { interfaceAddresses, nodeIp } }: Pick<ProxyPlan, "shared">,
  { from }: Packet,
): (address: IpAddress) => boolean {
  const own = new Set([...interfaceAddresses, nodeIp]);
  if (from.kind === "node") own.add(from.address);
  return (address) => isLoopback(address) || own.has(address);
}

/** Returns why no node port is served at a loopback address; `undefined` if one is. */
export function noLocalhostReason(
  { frontend: { role } }: PacketHit,
  { to }: Packet,
  { family, localhostNodePorts, cure }: {
    readonly family: IpFamily;
    readonly localhostNodePorts: boolean;
    /** The reason in IPv4, which is a setting. */
    readonly cure: string;
  },
): string | undefined {
  if (role !== "NodePort" || !isLoopback(to)) return undefined;
  if (family === "IPv6") return "IPv6 has no route_localnet: packets to ::1 stay on loopback";
  return localhostNodePorts ? undefined : cure;
}

/** The rules and elements of a walk. The same one is the same object on every path. */
export class WalkSteps {
  readonly #known = new Map<string, PacketCarrier>();

  step(carrier: PacketCarrier): PacketCarrier {
    const key = `${carrier.name} ${carrier.text}`;
    const step = this.#known.get(key) ?? carrier;
    this.#known.set(key, step);
    return step;
  }
}

/**
 * Returns the rules that contribute to any outcome of one walk, each once, in the order of the
 * walk.
 */
export function carriersOf(
  outcomes: readonly { readonly path: readonly PacketCarrier[] }[],
): readonly PacketCarrier[] {
  const known = new Set<PacketCarrier>();
  // The steps that only later paths have, by the next step that an earlier one has.
  const before = new Map<PacketCarrier | undefined, PacketCarrier[]>();
  const insert = (steps: readonly PacketCarrier[], next?: PacketCarrier) => {
    const list = before.get(next) ?? [];
    before.set(next, list);
    for (const step of steps) {
      list.push(step);
      known.add(step);
    }
  };
  for (const { path } of outcomes) {
    let fresh: PacketCarrier[] = [];
    for (const step of new Set(path)) {
      if (!known.has(step)) fresh.push(step);
      else {
        insert(fresh, step);
        fresh = [];
      }
    }
    insert(fresh);
  }
  return [...inOrder(undefined, before)];
}

function* inOrder(
  end: PacketCarrier | undefined,
  before: ReadonlyMap<PacketCarrier | undefined, readonly PacketCarrier[]>,
): Generator<PacketCarrier> {
  for (const step of before.get(end) ?? []) yield* inOrder(step, before);
  if (end) yield end;
}
