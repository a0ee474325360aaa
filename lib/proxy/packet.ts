import type { IpAddress } from "../net/ip_address.ts";
import type { ServerName } from "../net/server_name.ts";
import { formatHostPort, type Port, type Protocol } from "../net/port.ts";

/**
 * The sender of a packet. Policies for traffic from outside bind neither pods nor the node itself.
 */
export interface PacketSender {
  readonly kind: "pod" | "node" | "outside";
  readonly address: IpAddress;
  /** Interface of this node on which its packets arrive, if known. */
  readonly interfaceName?: string;
}

/** The first packet of a connection or flow. */
export interface Packet {
  readonly from: PacketSender;
  readonly to: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  /** The name that the client asks for by TLS, if any. */
  readonly serverName?: ServerName;
}

/** The destination of a packet, e.g. `10.96.0.1:443/TCP`. */
export function socketOf({ to, port, protocol }: Packet): string {
  return `${formatHostPort(to, port)}/${protocol}`;
}
