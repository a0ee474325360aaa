/**
 * Where a packet is sent to, as a path of hexadecimal digits: what the tree of chains branches by.
 * Address, then a letter for the protocol, then the port, so that paths which begin alike can be
 * told by one rule. Pure.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Port, Protocol } from "../../lib/net/port.ts";
import type { RuleMatch } from "../netfilter/iptables_objects.ts";

/** What the paths of a tree are made of. */
export type PathKind = "destination" | "port" | "endpoint";

const LETTERS: Readonly<Record<Protocol, string>> = { TCP: "t", UDP: "u", SCTP: "s" };
const PROTOCOL_OF = new Map<string | undefined, Protocol>([
  ["t", "TCP"],
  ["u", "UDP"],
  ["s", "SCTP"],
]);
const PORT_DIGITS = 4;
const ADDRESS_DIGITS: Readonly<Record<IpFamily, number>> = { IPv4: 8, IPv6: 32 };
const BITS_PER_DIGIT = 4;

/** The path of an address: 8 digits, or 32. */
export function addressPath(address: IpAddress): string {
  if (!address.includes(":")) {
    return address.split(".").map((octet) => hex(Number(octet), 2)).join("");
  }
  const [before = "", after] = address.split("::");
  const head = before === "" ? [] : before.split(":");
  const tail = after === undefined || after === "" ? [] : after.split(":");
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  return [...head, ...zeros, ...tail].map((group) => group.padStart(4, "0")).join("");
}

/** The path of a port on any address. */
export function portPath(protocol: Protocol, port: Port): string {
  return LETTERS[protocol] + hex(port, PORT_DIGITS);
}

/** The path of an address and port. */
export function destinationPath(address: IpAddress, protocol: Protocol, port: Port): string {
  return addressPath(address) + portPath(protocol, port);
}

/**
 * What all packets have in common whose path begins so. The empty beginning matches everything.
 * Endpoints are found by their source address.
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

function blockOf(digits: string, family: IpFamily): IpAddress | Cidr {
  const padded = digits.padEnd(ADDRESS_DIGITS[family], "0");
  const text = family === "IPv4"
    ? padded.match(/../g)?.map((octet) => parseInt(octet, 16)).join(".")
    : padded.match(/..../g)?.join(":");
  const address = parseIpAddress(text ?? "");
  const length = digits.length * BITS_PER_DIGIT;
  return digits.length === padded.length ? address : parseCidr(`${address}/${length}`);
}

function portRange(digits: string): { first: number; last: number } {
  return {
    first: parseInt(digits.padEnd(PORT_DIGITS, "0"), 16),
    last: parseInt(digits.padEnd(PORT_DIGITS, "f"), 16),
  };
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, "0");
}
