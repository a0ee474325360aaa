/**
 * The parts that every walk of a packet has: the packet, and the rules and elements that it meets. Pure.
 *
 * @module
 */
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { Protocol } from "../../../lib/net/port.ts";
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

/** The treatment of a connection by the rules of NetworkPolicies. */
export interface PolicyWalk {
  readonly verdict: "ACCEPT" | "DROP" | "REJECT";
  /** The rules and elements that had a part in it, in the order in which the packet meets them. */
  readonly path: readonly PacketCarrier[];
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
