/**
 * Addresses of sockets as the kernel has them (`struct sockaddr`).
 *
 * @module
 */
import {
  addressAt,
  addressNumber,
  type IpAddress,
  ipv4Number,
  parseIpAddress,
} from "../../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import type { Bytes } from "./libc.ts";

const [UNIX, INET, INET6] = [1, 2, 10];
/** Bytes of a path, with the zero behind it. */
const LONGEST_PATH = 107;

/** The family of an address. */
export function familyOf({ hostname }: SocketAddress): "IPv4" | "IPv6" {
  return hostname.includes(":") ? "IPv6" : "IPv4";
}

/** Bytes of the address of each family. */
const [INET_BYTES, INET6_BYTES] = [16, 28];

/**
 * The address as the kernel has it: in memory that the next call uses again, as fresh memory costs more than
 * the rest of an attempt to connect. The hostname has to be an address.
 */
export function encodeAddress({ hostname, port }: SocketAddress): Bytes {
  const isV6 = hostname.includes(":");
  const bytes = isV6 ? INET6_ADDRESS : INET_ADDRESS;
  bytes[2] = port >> 8;
  bytes[3] = port & 255;
  if (isV6) {
    const number = addressNumber(hostname as IpAddress);
    INET6_VIEW.setBigUint64(8, number >> 64n);
    INET6_VIEW.setBigUint64(16, number);
  } else {
    const number = ipv4Number(hostname as IpAddress);
    for (let octet = 0; octet < 4; octet++) bytes[4 + octet] = number >>> 24 - 8 * octet;
  }
  return bytes;
}

const INET_ADDRESS: Bytes = new Uint8Array(INET_BYTES);
const INET6_ADDRESS: Bytes = new Uint8Array(INET6_BYTES);
const INET6_VIEW = new DataView(INET6_ADDRESS.buffer);
INET_ADDRESS[0] = INET;
INET6_ADDRESS[0] = INET6;

/** The address at the start of `bytes`. */
export function decodeAddress(bytes: Uint8Array): SocketAddress {
  const port = bytes[2]! << 8 | bytes[3]!;
  if (bytes[0] === INET) {
    return { hostname: `${bytes[4]}.${bytes[5]}.${bytes[6]}.${bytes[7]}`, port };
  }
  if (bytes[0] !== INET6) return { hostname: "unix", port: 0 };
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const number = view.getBigUint64(8) << 64n | view.getBigUint64(16);
  return { hostname: addressAt(number, "IPv6"), port };
}

/** Throws a RangeError if the path is too long for a socket. */
export function encodePath(path: string): Bytes {
  const text = new TextEncoder().encode(path);
  if (text.length > LONGEST_PATH) {
    throw new RangeError(`the path of a socket has at most ${LONGEST_PATH} bytes: ${path}`);
  }
  const bytes = new Uint8Array(text.length + 3);
  bytes[0] = UNIX;
  bytes.set(text, 2);
  return bytes;
}

/** The address that stands for every address of a family. */
export function anyAddress(family: "IPv4" | "IPv6"): IpAddress {
  return parseIpAddress(family === "IPv4" ? "0.0.0.0" : "::");
}
