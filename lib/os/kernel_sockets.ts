/**
 * Sockets of this machine, as the kernel lists them in `/proc/net`. Pure.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { type IpAddress, parseIpAddress } from "../net/ip_address.ts";

/** Deno cannot read these files without all permissions; `cat` can. */
export const SOCKET_FILES = {
  IPv4: { TCP: "/proc/net/tcp", UDP: "/proc/net/udp" },
  IPv6: { TCP: "/proc/net/tcp6", UDP: "/proc/net/udp6" },
} as const satisfies Record<IpFamily, Record<"TCP" | "UDP", string>>;

/** A TCP socket that listens, and a UDP socket that is not connected (`TCP_LISTEN`, `TCP_CLOSE`). */
const WAITING = { TCP: "0A", UDP: "07" } as const;

/** A socket that waits for clients. */
export interface WaitingSocket {
  readonly address: IpAddress;
  readonly port: number;
  /** The user that it belongs to; `undefined` = the line is cut off. */
  readonly uid: number | undefined;
}

/** Reads the sockets that wait for clients; lines of another form are left out. */
export function* parseWaitingSockets(
  text: string,
  protocol: "TCP" | "UDP",
): Generator<WaitingSocket> {
  // `  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 …`
  const waiting = new RegExp(
    `^ *\\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ${
      WAITING[protocol]
    } ` +
      "(?:[0-9A-F]+:[0-9A-F]+ [0-9A-F]+:[0-9A-F]+ [0-9A-F]+ +(\\d+))?",
    "gm",
  );
  for (const [, address = "", port = "", uid] of text.matchAll(waiting)) {
    yield {
      address: parseIpAddress(addressText(address)),
      port: parseInt(port, 16),
      uid: uid === undefined ? undefined : Number(uid),
    };
  }
}

/** Each 32 bits are in the processor's order: on every processor that Deno runs on, the last byte first. */
function addressText(hex: string): string {
  const words = hex.match(/.{8}/g) ?? [];
  const bytes = words.flatMap((word) => (word.match(/../g) ?? []).reverse());
  if (bytes.length === 4) return bytes.map((byte) => parseInt(byte, 16)).join(".");
  return (bytes.join("").match(/.{4}/g) ?? []).join(":");
}
