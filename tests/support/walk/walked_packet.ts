/** The packet and the outcome of walks. Pure. */
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
