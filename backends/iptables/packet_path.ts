/**
 * The destination of a packet as a path of digits, by which the tree of chains branches: address, a
 * letter for the protocol, port. One rule can match all paths with the same beginning. Pure.
 *
 * A digit has two bits. With four, sparse addresses would end in chains of two or three each: 2,955
 * chains for 10,000 random ones. Two bits need half of it, and iptables-nft is slow with many
 * chains.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Port, Protocol } from "../../lib/net/port.ts";
import type { RuleMatch } from "../netfilter/iptables/iptables_objects.ts";

/** The parts that the paths of a tree consist of. */
export type PathKind = "destination" | "port" | "endpoint";

const LETTERS: Readonly<Record<Protocol, string>> = { TCP: "t", UDP: "u", SCTP: "s" };
const PROTOCOL_OF = new Map<string | undefined, Protocol>([
  ["t", "TCP"],
  ["u", "UDP"],
  ["s", "SCTP"],
]);
const BITS_PER_DIGIT = 2;
const PORT_DIGITS = 8;
const ADDRESS_DIGITS: Readonly<Record<IpFamily, number>> = { IPv4: 16, IPv6: 64 };
const [DOT, ZERO] = [0x2e, 0x30];
/** The four digits of each octet. */
const OCTETS: readonly string[] = Array.from({ length: 256 }, (_, octet) => digitsOf(octet, 4));

/** The path of an address: 16 digits, or 64. */
export function addressPath(address: IpAddress): string {
  if (!address.includes(":")) return ipv4Path(address);
  let path = "";
  const [before = "", after] = address.split("::");
  const head = before === "" ? [] : before.split(":");
  const tail = after === undefined || after === "" ? [] : after.split(":");
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  for (const group of [...head, ...zeros, ...tail]) path += wordPath(parseInt(group, 16));
  return path;
}

/** A hot path: splitting into a list of octets would take three times as long. */
function ipv4Path(address: IpAddress): string {
  let path = "";
  let octet = 0;
  for (let index = 0; index < address.length; index++) {
    const code = address.charCodeAt(index);
    if (code === DOT) {
      path += OCTETS[octet];
      octet = 0;
    } else octet = octet * 10 + code - ZERO;
  }
  return path + OCTETS[octet];
}

/** The path of a port on any address. */
export function portPath(protocol: Protocol, port: Port): string {
  return LETTERS[protocol] + wordPath(port);
}

/** The path of an address and port. */
export function destinationPath(address: IpAddress, protocol: Protocol, port: Port): string {
  return addressPath(address) + portPath(protocol, port);
}

/**
 * Returns the match for all packets whose path starts with `prefix`. An empty prefix matches
 * everything. Endpoints are matched by their source address.
 */
export function prefixMatch(prefix: string, kind: PathKind, family: IpFamily): RuleMatch {
  const addressDigits = kind === "port" ? 0 : ADDRESS_DIGITS[family];
  const digits = prefix.slice(0, addressDigits);
  const protocol = PROTOCOL_OF.get(prefix[addressDigits]);
  const port = prefix.slice(addressDigits + 1);
  const value = digits === "" ? undefined : blockOf(digits, family);
  const side = kind === "endpoint" ? "source" : "destination";
  return {
    ...(value !== undefined && { [side]: { value } }),
    ...(protocol !== undefined && { protocol }),
    ...(port !== "" && { destinationPorts: portRange(port) }),
  };
}

/**
 * A short text for a prefix in a chain's name: the covered bits in hexadecimal, and their number,
 * e.g. `0a600000-12` or `0a600001t1f00-8`.
 */
export function prefixLabel(prefix: string, kind: PathKind, family: IpFamily): string {
  const addressDigits = kind === "port" ? 0 : ADDRESS_DIGITS[family];
  const address = prefix.slice(0, addressDigits);
  const port = prefix.slice(addressDigits + 1);
  const label = hexOf(address.padEnd(addressDigits, "0")) + (prefix[addressDigits] ?? "");
  if (prefix.length <= addressDigits) return `${label}-${address.length * BITS_PER_DIGIT}`;
  return `${label}${hexOf(port.padEnd(PORT_DIGITS, "0"))}-${port.length * BITS_PER_DIGIT}`;
}

function blockOf(digits: string, family: IpFamily): IpAddress | Cidr {
  const hex = hexOf(digits.padEnd(ADDRESS_DIGITS[family], "0"));
  const text = family === "IPv4"
    ? hex.match(/../g)?.map((octet) => parseInt(octet, 16)).join(".")
    : hex.match(/..../g)?.join(":");
  const address = parseIpAddress(text ?? "");
  const length = digits.length * BITS_PER_DIGIT;
  return digits.length === ADDRESS_DIGITS[family] ? address : parseCidr(`${address}/${length}`);
}

function portRange(digits: string): { first: number; last: number } {
  return {
    first: parseInt(digits.padEnd(PORT_DIGITS, "0"), 4),
    last: parseInt(digits.padEnd(PORT_DIGITS, "3"), 4),
  };
}

/** The path of 16 bits. */
function wordPath(word: number): string {
  return `${OCTETS[word >> 8]}${OCTETS[word & 0xff]}`;
}

function digitsOf(value: number, digits: number): string {
  return value.toString(4).padStart(digits, "0");
}

function hexOf(digits: string): string {
  return digits.replaceAll(/../g, (pair) => parseInt(pair, 4).toString(16));
}
