/**
 * CIDR blocks as canonical text.
 *
 * @module
 */
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  ipv4Number,
  tryParseIpAddress,
} from "./ip_address.ts";

/**
 * A CIDR block in canonical text: network address (host bits zero) and prefix length.
 * Only {@linkcode parseCidr} makes one.
 */
export type Cidr = string & { readonly __brand: "Cidr" };

/** Parses a CIDR block; host bits are cleared. Throws a SyntaxError that quotes the text. */
export function parseCidr(text: string): Cidr {
  const parsed = tryParseCidr(text);
  if (parsed === undefined) {
    throw new SyntaxError(
      `Cannot parse CIDR '${text}': expected an IP address, a slash and a prefix length`,
    );
  }
  return parsed;
}

/** Like {@linkcode parseCidr}, but returns `undefined` instead of throwing. */
export function tryParseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf("/");
  const address = tryParseIpAddress(slash < 0 ? "" : text.slice(0, slash));
  const digits = text.slice(slash + 1);
  if (address === undefined || !/^\d{1,3}$/.test(digits)) return undefined;
  // An IPv4-mapped address has become IPv4, but its length counts bits of IPv6.
  if (text.includes(":") !== address.includes(":")) return undefined;
  const length = Number(digits);
  const hostBits = (address.includes(":") ? 128 : 32) - length;
  if (hostBits < 0) return undefined;
  if (hostBits === 0) return `${address}/${length}` as Cidr;
  const number = addressNumber(address) >> BigInt(hostBits) << BigInt(hostBits);
  return `${addressAt(number, ipFamilyOf(address))}/${length}` as Cidr;
}

/** Returns the block that contains only one address. */
export function hostCidr(address: IpAddress): Cidr {
  return `${address}/${address.includes(":") ? 128 : 32}` as Cidr;
}

/** The family of a block. */
export function cidrFamilyOf(cidr: Cidr): IpFamily {
  return cidr.includes(":") ? "IPv6" : "IPv4";
}

/** The prefix length of a block. */
export function prefixLengthOf(cidr: Cidr): number {
  return Number(cidr.slice(cidr.indexOf("/") + 1));
}

/** The first address of a block. */
export function networkOf(cidr: Cidr): IpAddress {
  return cidr.slice(0, cidr.indexOf("/")) as IpAddress;
}

/** Whether a block contains an address. Never true across families. */
export function cidrContains(cidr: Cidr, address: IpAddress): boolean {
  if (cidr.includes(":") !== address.includes(":")) return false;
  const length = prefixLengthOf(cidr);
  return prefixOf(bitsOf(networkOf(cidr)), length) === prefixOf(bitsOf(address), length);
}

/** The bits of an IPv4 address, or of an IPv6 address, or the leading ones of them. */
export type AddressBits = number | bigint;

/** The bits of an address. Those of IPv4 cost nothing that would have to be freed. */
export function bitsOf(address: IpAddress): AddressBits {
  return ipFamilyOf(address) === "IPv4" ? ipv4Number(address) : addressNumber(address);
}

/** The first bits of an address: equal for all addresses of a block with this prefix length. */
export function prefixOf(bits: AddressBits, length: number): AddressBits {
  if (typeof bits === "bigint") return bits >> BigInt(128 - length);
  // A shift by 32 bits does nothing.
  return length === 0 ? 0 : bits >>> (32 - length);
}
